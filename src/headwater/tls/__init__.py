"""TLS for all that listens: certificates, how they are renewed, and the way into a connection.

    files ──▶ Keyring (the newest good pair, as a context) ──▶ Encryption ──▶ what is spoken inside
      ▲          │ expires, fault
      └── KeyringWatch: has one changed?

- A connection is accepted first (accepting.py) and encrypted then: so a handshake is counted, and
  ends in time.
- A handshake takes the context that there is when it begins. A new certificate is a new context;
  whoever is connected already keeps the old one.
- A pair that cannot be used never replaces one that can.

Flight has a TLS of its own (gRPC's), and takes nothing but the files.
"""

from headwater.tls.encryption import Encryption as Encryption
from headwater.tls.keyring import Keyring as Keyring
from headwater.tls.keyring import TlsFiles as TlsFiles
from headwater.tls.watch import KeyringWatch as KeyringWatch
