/** Colour theme: light, dark, or the system's. */

import { choice } from "./choice.js";
import { preference, setPreference } from "./preferences.js";

const THEMES = ["auto", "light", "dark"];

/** Apply the user's theme. Must be called before anything is shown. */
export function applyTheme() {
  const theme = preference("theme", "auto");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

/** @returns {HTMLElement} select for the theme */
export function themeControl() {
  const choose = (theme) => {
    setPreference("theme", theme);
    applyTheme();
  };
  const options = THEMES.map((theme) => [theme, theme]);
  return choice("choose-theme", "Theme", options, preference("theme", "auto"), choose);
}
