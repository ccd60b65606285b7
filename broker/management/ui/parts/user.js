/** The logged-in user, login and logout. */

import { Api } from "./api.js";

const INCLUDED = {
  administrator: ["administrator", "monitoring", "policymaker", "management"],
  monitoring: ["monitoring", "management"],
  policymaker: ["policymaker", "management"],
  management: ["management"],
};

/** User of the session. The tags only decide what the UI offers; the API checks permissions. */
export class User {
  /** @param {{name: string, tags: string[]}} document user object of the API */
  constructor({ name, tags }) {
    this.name = name;
    this.tags = tags;
  }

  /** @param {string} tag administrator, monitoring, policymaker or management @returns {boolean} whether the user has the rights of the tag */
  may(tag) {
    return this.tags.some((own) => INCLUDED[own]?.includes(tag));
  }
}

/** @returns {Promise<User|null>} the logged-in user; null without a session */
export async function currentUser() {
  const document = await new Api().get(["session"]);
  return document.name === undefined ? null : new User(document);
}

/** Log in. @returns {Promise<User>} @throws {ApiError} name or password is wrong */
export async function logIn(username, password) {
  return new User(await new Api().request("POST", ["session"], { form: { username, password } }));
}

/** Log out. */
export async function logOut() {
  await new Api().delete(["session"]);
}
