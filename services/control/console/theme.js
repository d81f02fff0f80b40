// Light or dark: as the system says, unless the switch was used. Loaded before the page is drawn, so
// that nobody sees the other one first.
(() => {
  const KEPT = 'dovetail.theme';
  const NEXT = { auto: 'light', light: 'dark', dark: 'auto' };
  const root = document.documentElement;

  const kept = () => {
    try {
      return localStorage.getItem(KEPT);
    } catch {
      return null; // storage may be forbidden: then the system decides
    }
  };

  const show = (theme) => {
    root.dataset.theme = theme;
    const button = document.getElementById('theme');
    if (button) {
      button.textContent = { auto: '◐', light: '☀', dark: '☾' }[theme];
      button.setAttribute('aria-label', `Colours: ${theme}. Switch to ${NEXT[theme]}`);
      button.title = `colours: ${theme}`;
    }
  };

  show(kept() in NEXT ? kept() : 'auto');
  addEventListener('DOMContentLoaded', () => {
    show(root.dataset.theme);
    document.getElementById('theme').addEventListener('click', () => {
      const theme = NEXT[root.dataset.theme];
      try {
        localStorage.setItem(KEPT, theme);
      } catch {
        // it holds until the page is left
      }
      show(theme);
    });
  });
})();
