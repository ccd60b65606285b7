/** Entry point: shows the login form, or the shell with its pages. */

import { ConnectionLost } from "./parts/api.js";
import { Notice } from "./parts/notice.js";
import { Shell } from "./parts/shell.js";
import { applyTheme } from "./parts/theme.js";
import { currentUser, logOut } from "./parts/user.js";
import { loginPage } from "./parts/login.js";

const RETRY_MS = 2000;

/** Notifies other tabs of the browser, which share the session cookie, about login and logout. */
const tabs = new BroadcastChannel("leveret session");

let shell = null;
let login = null;

function showLogin(reason) {
  shell?.pause();
  document.title = "Log in – Leveret";
  // Keep an existing form, which may contain typed text.
  if (login !== null) return;
  login = loginPage(reason, (user) => {
    tabs.postMessage("logged in");
    enter(user);
  });
  document.body.append(login);
  login.querySelector("input").focus();
}

/** Show the shell. The same user gets the existing shell with its state; another user gets a new one. */
function enter(user) {
  login?.remove();
  login = null;
  if (shell !== null && shell.user.name === user.name && shell.user.tags.join() === user.tags.join()) {
    shell.resume();
    return;
  }
  shell?.close();
  shell = new Shell(user, { ended: () => showLogin("Your session has ended. Please log in again."), left: leave });
  document.body.append(shell.element);
  shell.open();
}

async function leave() {
  await logOut();
  tabs.postMessage("logged out");
  begin("");
}

/** Discard the previous user's shell and show the login form. */
function begin(reason) {
  shell?.close();
  shell = null;
  showLogin(reason);
}

/** Adopt a login or logout in another tab, which has replaced the session cookie. */
async function follow() {
  try {
    const user = await currentUser();
    if (user !== null) enter(user);
    else if (shell !== null) begin("You have been logged out in another tab.");
  } catch {
    // The next refresh reports the error.
  }
}

async function start() {
  applyTheme();
  const lost = new Notice("error");
  document.body.append(lost.element);
  for (;;) {
    try {
      const user = await currentUser();
      lost.element.remove();
      if (user === null) showLogin("");
      else enter(user);
      return;
    } catch (error) {
      lost.show(error instanceof ConnectionLost ? `${error.message} Trying again …` : error.message);
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}

tabs.addEventListener("message", follow);
start();
