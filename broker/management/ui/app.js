/** The entry: who is logged in, and then the shell in which pages are shown. */

import { ConnectionLost } from "./parts/api.js";
import { Notice } from "./parts/notice.js";
import { Shell } from "./parts/shell.js";
import { applyTheme } from "./parts/theme.js";
import { currentUser, logOut } from "./parts/user.js";
import { loginPage } from "./parts/login.js";

const RETRY_MS = 2000;

let shell = null;

function showLogin(reason) {
  shell?.pause();
  document.title = "Log in – Leveret";
  const page = loginPage(reason, (user) => {
    page.remove();
    enter(user);
  });
  document.body.append(page);
  page.querySelector("input").focus();
}

/** The same user finds everything as it was, also what had been typed; another one begins anew. */
function enter(user) {
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
  shell.close();
  shell = null;
  showLogin("");
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

start();
