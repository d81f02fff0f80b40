// What the tests ask of a page, as an object of functions.
({
  /** Texts whose colour is too near to what is behind it. Disabled controls are exempt (WCAG 1.4.3). */
  tooFaint(least) {
    const parse = (text) => {
      const found = text.match(/[\d.]+/g).map(Number);
      return found.length < 4 ? [...found.slice(0, 3), 1] : found;
    };
    const over = ([r, g, b, a], under) => [r, g, b].map((one, at) => one * a + under[at] * (1 - a));
    const behind = (element) => {
      const layers = [];
      for (let one = element; one; one = one.parentElement) {
        layers.unshift(parse(getComputedStyle(one).backgroundColor));
      }
      return layers.reduce((under, layer) => over(layer, under), [255, 255, 255]);
    };
    const linear = (part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    const light = (rgb) => {
      const [r, g, b] = rgb.map((one) => linear(one / 255));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const faint = [];
    for (const element of document.querySelectorAll('body *')) {
      const words = [...element.childNodes].filter((node) => node.nodeType === 3 && node.data.trim());
      if (!words.length || !element.checkVisibility()) continue;
      if (element.closest(':disabled, option, noscript, .hidden, .skip')) continue;
      const drawn = element.namespaceURI.endsWith('svg');
      const colour = parse(getComputedStyle(element)[drawn ? 'fill' : 'color']);
      const under = behind(drawn ? element.closest('svg') : element);
      const [high, low] = [light(over(colour, under)), light(under)].sort((a, b) => b - a);
      const contrast = (high + 0.05) / (low + 0.05);
      const name = `${element.tagName}.${element.getAttribute('class')}`;
      if (contrast < least) faint.push(`${contrast.toFixed(2)} ${name} ${words[0].data.trim().slice(0, 40)}`);
    }
    return faint;
  },

  /** What sticks out at the right, but for what scrolls by itself within its panel. */
  tooWide() {
    const wide = document.documentElement.clientWidth;
    const scrolls = (one) => one && (getComputedStyle(one).overflowX !== 'visible' || scrolls(one.parentElement));
    const right = (one) => one.getBoundingClientRect().right;
    const found = [...document.querySelectorAll('body *')]
      .filter((one) => one.checkVisibility() && right(one) > wide + 0.5 && !scrolls(one.parentElement))
      .map((one) => `${one.tagName} ${one.id || one.getAttribute('class')} ends at ${right(one)}`);
    const page = document.documentElement.scrollWidth;
    return page > wide ? [...found, `the page is ${page} wide`] : found;
  },

  /** Who has the focus, and whether that can be seen. */
  focus() {
    const one = document.activeElement;
    const { outlineStyle, outlineWidth } = getComputedStyle(one);
    const box = one.getBoundingClientRect();
    return {
      name: one.id || one.textContent.trim(),
      outlined: outlineStyle !== 'none' && parseFloat(outlineWidth) >= 2,
      inSight: box.width > 0 && box.top < innerHeight && box.bottom > 0,
      inDialog: one === document.body || Boolean(one.closest('dialog')),
    };
  },

  /** Tables without a caption or column headers, and controls without a name. */
  nameless() {
    const tables = [...document.querySelectorAll('table')].filter(
      (one) => !one.caption || [...one.tHead.rows[0].cells].some((cell) => cell.scope !== 'col'),
    );
    const controls = [...document.querySelectorAll('button, input, select, a')].filter(
      (one) => one.checkVisibility() && !(one.ariaLabel || one.labels?.length || one.textContent.trim()),
    );
    return [...tables, ...controls].map((one) => one.outerHTML.slice(0, 120));
  },
})
