"""Who may use a broker: apps.py knows the apps that connect, users.py the people at the console."""
