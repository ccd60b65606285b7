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

/**
 * @typedef {{password: boolean, signOn: boolean}} LoginWays whether people may log in by name and password, and by single
 *   sign-on
 */

/** @returns {Promise<LoginWays>} how people may log in */
export async function loginWays() {
  const { oauth_enabled: signOn, oauth_disable_basic_auth: isOnly } = await new Api().get(["auth"]);
  return { password: !(signOn && isOnly), signOn };
}

/** Begin single sign-on. @returns {Promise<string>} the page of the provider @throws {ApiError} it does not answer */
export async function signOn() {
  return (await new Api().post(["session", "oauth"])).location;
}

/** Log out. @returns {Promise<string|null>} the page of the provider to log out at as well; null without one */
export async function logOut() {
  return (await new Api().delete(["session"]))?.location ?? null;
}
