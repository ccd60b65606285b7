/** Page of an operator policy. */

import { policyPage } from "./policy.js";
import { OPERATOR_POLICY } from "./policy_kinds.js";

export default policyPage(OPERATOR_POLICY);
