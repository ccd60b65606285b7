/** Entry point: shows the login form, or the shell with its pages. */

import { ConnectionLost } from "./parts/api.js";
import { loginPage } from "./parts/login.js";
import { Notice } from "./parts/notice.js";
import { applyTheme, Shell } from "./parts/shell.js";
import { currentUser, logOut, loginWays } from "./parts/user.js";

const RETRY_MS = 2000;

/** Notifies other tabs of the browser, which share the session cookie, about login and logout. */
const tabs = new BroadcastChannel("leveret session");

/** What has gone wrong with single sign-on, by the code behind `#login-failed=`; see OAuthSessions in controllers/sessions.py. */
const FAILURES = {
  expired: "The login has taken too long, or has begun in another browser. Please try again.",
  refused: "The provider has logged you in, but you may not use this broker. Its log says why.",
  provider: "The provider could not be asked. The broker's log says why.",
  access_denied: "The provider has not logged you in.",
};

let shell = null;
let login = null;
/** How people may log in. */
let ways = { password: true, signOn: false };

function showLogin(reason) {
  shell?.pause();
  document.title = "Log in – Leveret";
  // Keep an existing form, which may contain typed text.
  if (login !== null) return;
  login = loginPage(reason, ways, (user) => {
    tabs.postMessage("logged in");
    enter(user);
  });
  document.body.append(login);
  login.querySelector("input, button").focus();
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
  const page = await logOut();
  tabs.postMessage("logged out");
  if (page !== null) {
    location.assign(page);
    return;
  }
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

/** Return why single sign-on has failed, and take it out of the address. */
function takeFailure() {
  const code = /^#login-failed=(\w*)$/.exec(location.hash)?.[1];
  if (code === undefined) return "";
  history.replaceState(null, "", location.pathname);
  return Object.hasOwn(FAILURES, code) ? FAILURES[code] : FAILURES.access_denied;
}

async function start() {
  applyTheme();
  const lost = new Notice("error");
  document.body.append(lost.element);
  for (;;) {
    try {
      const user = await currentUser();
      if (user === null) ways = await loginWays();
      lost.element.remove();
      if (user === null) showLogin(takeFailure());
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
