/* What is wrong with the page as it is shown; an empty list where nothing is. */
(() => {
  const found = [];
  const visible = (element) => element.checkVisibility({ visibilityProperty: true }) && element.getClientRects().length > 0;
  const named = (element) => element.tagName.toLowerCase() + (element.id ? "#" + element.id : "") + " " + JSON.stringify((element.textContent || "").trim().slice(0, 40));

  /* Contrast, as WCAG counts it. */
  const parse = (text) => {
    const numbers = (text.match(/[\d.]+/g) ?? []).map(Number);
    return { r: numbers[0] ?? 0, g: numbers[1] ?? 0, b: numbers[2] ?? 0, a: numbers[3] ?? 1 };
  };
  const luminance = ({ r, g, b }) => {
    const part = (value) => { const v = value / 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color.a > 0.99) return color;
    }
    return { r: 255, g: 255, b: 255, a: 1 };
  };
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim() !== "");
    if (!own || !visible(element) || ["SCRIPT", "STYLE", "OPTION", "TITLE"].includes(element.tagName)) continue;
    const style = getComputedStyle(element);
    const inDrawing = element.namespaceURI === "http://www.w3.org/2000/svg";
    const front = parse(inDrawing ? style.fill : style.color);
    const a = luminance(front), b = luminance(behind(inDrawing ? element.closest("svg") : element));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const isLarge = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (isLarge ? 3 : 4.5)) found.push("contrast " + ratio.toFixed(2) + " of " + named(element));
  }

  /* Width: only what has its own scroll bar may be wider than the window. */
  const width = document.documentElement.scrollWidth;
  if (width > innerWidth) {
    const wide = [...document.querySelectorAll("body *")].filter((element) => element.getBoundingClientRect().right > innerWidth + 1 && !element.closest(".wide, pre"));
    found.push("the page is " + width + " wide in a window of " + innerWidth + ": " + wide.slice(0, 3).map(named).join("; "));
  }

  /* Names: whoever does not see the page has to be told what a control is. */
  for (const control of document.querySelectorAll("input:not([type=hidden]), select, textarea, button, a[href], summary")) {
    if (!visible(control)) continue;
    const label = control.getAttribute("aria-label") || control.labels?.[0]?.textContent || control.textContent || control.value || control.title;
    if (!label || label.trim() === "") found.push("no name for " + control.outerHTML.slice(0, 120));
  }
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  for (const id of new Set(ids.filter((id, index) => ids.indexOf(id) !== index))) found.push("two elements are called " + id);
  if (document.querySelectorAll("h1").length !== 1) found.push("one heading of the first rank, not " + document.querySelectorAll("h1").length);
  if (!document.documentElement.lang) found.push("no language");
  for (const image of document.querySelectorAll("svg")) {
    if (visible(image) && image.getAttribute("aria-hidden") !== "true" && !image.getAttribute("aria-label") && !image.getAttribute("aria-labelledby") && !image.querySelector("title")) found.push("a drawing without a name");
  }
  return found;
})()
