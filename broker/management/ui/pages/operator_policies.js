/** Page with the list of operator policies. */

import { policyListPage } from "./policies.js";
import { OPERATOR_POLICY } from "./policy_kinds.js";

export default policyListPage(OPERATOR_POLICY);
