// Light or dark: as the system has it, unless the toggle was used. Not a module, and loaded before
// anything is painted, so that a dark page never flashes white.
(() => {
  const KEY = "headwater-theme";
  const system = matchMedia("(prefers-color-scheme: dark)");

  function chosen() {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null; // storage may be forbidden; the system's choice is good enough then
    }
  }

  function apply() {
    document.documentElement.dataset.theme = chosen() ?? (system.matches ? "dark" : "light");
  }

  window.headwaterTheme = {
    get current() {
      return document.documentElement.dataset.theme;
    },
    toggle() {
      const next = this.current === "dark" ? "light" : "dark";
      try {
        // Back to what the system says means: follow the system again.
        if ((next === "dark") === system.matches) localStorage.removeItem(KEY);
        else localStorage.setItem(KEY, next);
        apply();
      } catch {
        document.documentElement.dataset.theme = next;
      }
    },
  };

  system.addEventListener("change", apply);
  apply();
})();
