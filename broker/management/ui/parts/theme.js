/** Light, dark, or as the system has it. */

import { choice } from "./choice.js";
import { prefer, preference } from "./preferences.js";

const THEMES = ["auto", "light", "dark"];

/** Put the theme that the user likes in force; to be called before anything is shown. */
export function applyTheme() {
  const theme = preference("theme", "auto");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

/** @returns {HTMLElement} the choice of the theme */
export function themeControl() {
  const choose = (theme) => {
    prefer("theme", theme);
    applyTheme();
  };
  const options = THEMES.map((theme) => [theme, theme]);
  return choice("choose-theme", "Theme", options, preference("theme", "auto"), choose);
}
