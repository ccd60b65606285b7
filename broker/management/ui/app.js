/** The entry: who is logged in, and then the shell in which pages are shown. */

import { ConnectionLost } from "./parts/api.js";
import { Notice } from "./parts/notice.js";
import { Shell } from "./parts/shell.js";
import { applyTheme } from "./parts/theme.js";
import { currentUser, logOut } from "./parts/user.js";
import { loginPage } from "./parts/login.js";

const RETRY_MS = 2000;

/** Tells the other tabs of the browser, which share the cookie, that somebody has logged in or out. */
const tabs = new BroadcastChannel("leveret session");

let shell = null;
let login = null;

function showLogin(reason) {
  shell?.pause();
  document.title = "Log in – Leveret";
  // Where the form is there already, something may have been typed.
  if (login !== null) return;
  login = loginPage(reason, (user) => {
    tabs.postMessage("logged in");
    enter(user);
  });
  document.body.append(login);
  login.querySelector("input").focus();
}

/** The same user finds everything as it was, also what had been typed; another one begins anew. */
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

/** Nobody is logged in, and nothing is left of who was. */
function begin(reason) {
  shell?.close();
  shell = null;
  showLogin(reason);
}

/** Somebody has logged in or out in another tab: the cookie is that of the newest one. */
async function follow() {
  try {
    const user = await currentUser();
    if (user !== null) enter(user);
    else if (shell !== null) begin("You have been logged out in another tab.");
  } catch {
    // Whatever is wrong, the next refresh says it.
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
