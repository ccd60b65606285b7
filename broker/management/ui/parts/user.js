/** Who is logged in. */

import { Api } from "./api.js";

const INCLUDED = {
  administrator: ["administrator", "monitoring", "policymaker", "management"],
  monitoring: ["monitoring", "management"],
  policymaker: ["policymaker", "management"],
  management: ["management"],
};

/** The user of the session; what it may is decided by the API, this only decides what is offered. */
export class User {
  /** @param {{name: string, tags: string[]}} document as the API has it */
  constructor({ name, tags }) {
    this.name = name;
    this.tags = tags;
  }

  /** @param {string} tag administrator, monitoring, policymaker or management @returns {boolean} whether it has its rights */
  may(tag) {
    return this.tags.some((given) => INCLUDED[given]?.includes(tag));
  }
}

/** @returns {Promise<User|null>} who is logged in; null if nobody is */
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
