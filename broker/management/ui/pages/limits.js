/** Page with the limits of all virtual hosts and users. */

import { h, patch } from "../parts/element.js";
import { heading, section } from "../parts/layout.js";
import { USER_LIMITS, VHOST_LIMITS, limitForm, limitTable } from "./limits_part.js";

export default {
  title: () => "Limits",

  mount(context) {
    const { api, root, user } = context;
    const mayChange = user.may("administrator");
    let forms = null;
    patch(root, heading("Limits"));
    return async () => {
      const [ofVhosts, ofUsers] = await Promise.all([api.get(["vhost-limits"]), api.get(["user-limits"])]);
      if (mayChange) forms ??= await makeForms(context);
      const chosen = ofVhosts.filter(({ vhost }) => context.vhost === "" || vhost === context.vhost);
      patch(
        root,
        heading("Limits"),
        section("Virtual hosts", limitTable(context, VHOST_LIMITS, chosen), forms?.vhosts.element),
        section("Users", limitTable(context, USER_LIMITS, ofUsers), forms?.users.element),
        mayChange ? null : h("p", { class: "muted section" }, "Setting limits requires the tag administrator."),
      );
    };
  },
};

async function makeForms(context) {
  const columns = { columns: "name" };
  const [vhosts, users] = await Promise.all([context.api.get(["vhosts"], columns), context.api.get(["users"], columns)]);
  const names = (found) => found.map(({ name }) => name);
  return {
    vhosts: limitForm(context, VHOST_LIMITS, { names: names(vhosts) }),
    users: limitForm(context, USER_LIMITS, { names: names(users) }),
  };
}
