//! Operations about configuration beyond its families, about access, and about alerts.

use super::{Errors, FORM, Group, JSON, LINES, OperationMethods, Row, row};

/// Parameters of neighbours of a resource.
const NEIGHBOURS: &str = "direction depth relationshipTypes resourceTypes limit through";

/// Operations of key transactions. Candidates have a parameter for their owner, which is named after its kind.
const fn of_transactions(of_candidates: &'static str) -> [Row; 3] {
    [
        row(OperationMethods::Get, "/candidates", "Lists what was detected and is no key transaction", of_candidates),
        row(OperationMethods::Get, "/{id}/summary", "Gives figures of a key transaction", "start end"),
        row(OperationMethods::Post, "/from-candidates", "Makes key transactions, all or none", "dryRun")
            .takes(&[JSON])
            .gives("201", JSON),
    ]
}

pub(super) const GROUPS: &[Group] = &[
    Group {
        tag: "transactions",
        at: &["/bt-detection-rules", "/rum-bt-detection-rules"],
        errors: Errors::Problem,
        rows: &[
            row(OperationMethods::Post, "/test-pattern", "Tries a pattern on texts", "").takes(&[JSON]),
            row(OperationMethods::Post, "/test", "Tries rules on examples or stored spans", "").takes(&[JSON]),
            row(OperationMethods::Post, "/apply-to-all", "Puts rules to stored spans, as a job", "dryRun")
                .takes(&[JSON])
                .gives("202", JSON),
            row(OperationMethods::Post, "/{id}/apply-to-all", "Puts a rule to stored spans, as a job", "dryRun")
                .takes(&[JSON])
                .gives("202", JSON),
        ],
    },
    Group {
        tag: "transactions",
        at: &["/transactions"],
        errors: Errors::Problem,
        rows: &of_transactions("service start end sort limit"),
    },
    Group {
        tag: "transactions",
        at: &["/rum-key-business-transactions"],
        errors: Errors::Problem,
        rows: &of_transactions("application start end sort limit"),
    },
    Group {
        tag: "business-processes",
        at: &["/business-processes"],
        errors: Errors::Problem,
        rows: &[
            row(OperationMethods::Post, "/test", "Follows a process through what is stored", "").takes(&[JSON]),
            row(OperationMethods::Get, "/{id}/stats", "Gives figures of a process and its steps", "start end"),
            row(OperationMethods::Get, "/{id}/instances", "Lists instances of a process", "start end state limit"),
        ],
    },
    Group {
        tag: "jobs",
        at: &["/platform-api/jobs"],
        errors: Errors::Problem,
        rows: &[
            row(OperationMethods::Get, "/{id}", "Says how far a job is", ""),
            row(OperationMethods::Delete, "/{id}", "Cancels a job", ""),
        ],
    },
    Group {
        tag: "business-processes",
        at: &["/business-processes/{id}/steps"],
        errors: Errors::Problem,
        rows: &[
            row(OperationMethods::Get, "", "Lists the steps of a process", "").also("304"),
            row(OperationMethods::Post, "", "Adds a step", "dryRun").takes(&[JSON]).gives("201", JSON),
            row(OperationMethods::Put, "/order", "Orders the steps", "dryRun").takes(&[JSON]),
            row(OperationMethods::Get, "/{step}", "Reads a step", "").also("304"),
            row(OperationMethods::Put, "/{step}", "Replaces a step", "dryRun").takes(&[JSON]),
            row(OperationMethods::Patch, "/{step}", "Changes a step", "dryRun")
                .takes(&[JSON, "application/merge-patch+json"]),
            row(OperationMethods::Delete, "/{step}", "Deletes a step", "dryRun").gives("204", ""),
            row(OperationMethods::Post, "/{step}/move", "Moves a step", "dryRun").takes(&[JSON]),
        ],
    },
    Group {
        tag: "configuration",
        at: &["/platform-api"],
        errors: Errors::Problem,
        rows: &[
            row(
                OperationMethods::Get,
                "/apdex-thresholds/effective",
                "Says which threshold counts",
                "service! operation signal",
            ),
            row(OperationMethods::Post, "/segments/preview", "Counts what a segment leaves, by service", "")
                .takes(&[JSON]),
            row(OperationMethods::Post, "/data-extraction-rules/test", "Tries a rule on records", "").takes(&[JSON]),
            row(OperationMethods::Get, "/data-extraction-rules/{id}/stats", "Gives figures of a rule", ""),
            row(OperationMethods::Get, "/resources/summary", "Counts resources", "groupBy"),
            row(OperationMethods::Get, "/resources/{id}/summary", "Says how a resource does", "start end"),
            row(OperationMethods::Post, "/resources/dependency-graph", "Gives the graph around resources", "")
                .takes(&[JSON]),
            row(OperationMethods::Get, "/resources/{id}/neighbours", "Lists what a resource is related to", NEIGHBOURS),
            row(OperationMethods::Get, "/resources/{id}/neighbors", "Lists what a resource is related to", NEIGHBOURS),
            row(
                OperationMethods::Get,
                "/resources/{id}/dependency-graph",
                "Gives the graph around a resource",
                "direction depth relationshipTypes resourceTypes ciClasses at limit through",
            ),
            row(OperationMethods::Post, "/resources/{id}/merge", "Merges resources into one", "dryRun").takes(&[JSON]),
        ],
    },
    Group {
        tag: "access",
        at: &["/platform-api/rbac"],
        errors: Errors::Problem,
        rows: &[
            row(OperationMethods::Get, "/me", "Says who calls", ""),
            row(OperationMethods::Put, "/me/password", "Changes the own password", "dryRun")
                .takes(&[JSON])
                .gives("2XX", ""),
            row(OperationMethods::Get, "/permissions", "Lists rights and domains", ""),
            row(OperationMethods::Post, "/permissions/check", "Says what somebody may do", "").takes(&[JSON]),
            row(OperationMethods::Get, "/users/{id}/effective-permissions", "Gives what a user may do", ""),
            row(OperationMethods::Post, "/users/{id}/reset-password", "Gives a user a new password", "dryRun")
                .takes(&[JSON])
                .gives("2XX", JSON),
            row(OperationMethods::Post, "/users/{id}/logout", "Ends the sessions of a user", "dryRun").gives("2XX", ""),
            row(
                OperationMethods::Get,
                "/service-accounts/{id}/effective-permissions",
                "Gives what an account may do",
                "",
            ),
            row(
                OperationMethods::Post,
                "/service-accounts/{id}/rotate-secret",
                "Gives an account a new secret",
                "dryRun",
            )
            .gives("2XX", JSON),
            row(
                OperationMethods::Get,
                "/audit",
                "Lists what was changed, by whom",
                "start end actor action family entityId outcome filter q sort fields count limit cursor",
            ),
            row(
                OperationMethods::Get,
                "/audit/export",
                "Gives the audit as lines",
                "start end actor action family entityId outcome filter q",
            )
            .gives("200", LINES),
            row(OperationMethods::Get, "/audit/verify", "Checks that the audit is whole", ""),
            row(OperationMethods::Post, "/keys/rotate", "Makes a new signing key", "revokeOld dryRun")
                .gives("2XX", JSON),
        ],
    },
    Group {
        tag: "access",
        at: &["/realms/platform"],
        errors: Errors::Token,
        rows: &[
            row(OperationMethods::Get, "", "Gives the realm's key and addresses", ""),
            row(OperationMethods::Get, "/.well-known/openid-configuration", "Describes the token service", ""),
            row(OperationMethods::Get, "/protocol/openid-connect/certs", "Gives the signing keys", ""),
            row(OperationMethods::Post, "/protocol/openid-connect/token", "Gives tokens", "").takes(&[FORM]),
            row(OperationMethods::Form, "/protocol/openid-connect/userinfo", "Says whose the token is", ""),
            row(OperationMethods::Post, "/protocol/openid-connect/token/introspect", "Says what a token is", "")
                .takes(&[FORM]),
            row(OperationMethods::Post, "/protocol/openid-connect/revoke", "Ends a token", "")
                .takes(&[FORM])
                .gives("2XX", ""),
            row(
                OperationMethods::Form,
                "/protocol/openid-connect/logout",
                "Ends a session",
                "id_token_hint post_logout_redirect_uri state",
            )
            .gives("2XX", ""),
        ],
    },
    Group {
        tag: "alerts",
        at: &["/api/v2"],
        errors: Errors::Json,
        rows: &[
            row(OperationMethods::Get, "/status", "Says how alerting stands", ""),
            row(OperationMethods::Get, "/receivers", "Lists receivers", "receiver_matchers"),
            row(
                OperationMethods::Get,
                "/alerts",
                "Lists alerts",
                "active silenced inhibited unprocessed filter receiver receiver_matchers",
            ),
            row(OperationMethods::Post, "/alerts", "Takes alerts", "").takes(&[JSON]).gives("200", ""),
            row(OperationMethods::Post, "/alertprocess", "Takes an envelope of a webhook", "")
                .takes(&[JSON])
                .gives("200", ""),
            row(
                OperationMethods::Get,
                "/alerts/groups",
                "Lists groups of alerts",
                "active silenced inhibited muted filter receiver receiver_matchers",
            ),
            row(OperationMethods::Get, "/silences", "Lists silences", "filter active pending expired"),
            row(OperationMethods::Post, "/silences", "Makes or changes a silence", "").takes(&[JSON]),
            row(OperationMethods::Get, "/silence/{id}", "Reads a silence", ""),
            row(OperationMethods::Delete, "/silence/{id}", "Ends a silence", "").gives("200", ""),
        ],
    },
    Group {
        tag: "alerting",
        at: &["/rulesapi"],
        errors: Errors::Problem,
        rows: &[
            row(OperationMethods::Post, "/rules/test", "Tries rules on series", "").takes(&[JSON, "application/yaml"]),
            row(OperationMethods::Post, "/rules/{id}/clone", "Copies a rule", "dryRun")
                .takes(&[JSON])
                .gives("201", JSON),
            row(OperationMethods::Post, "/rules/unit-test", "Runs unit tests of rules", "").takes(&[JSON]),
            row(OperationMethods::Get, "/rules/{id}/state", "Says how a rule goes", ""),
            row(
                OperationMethods::Get,
                "/rules/{id}/alerts-history",
                "Lists changes of a rule's alerts",
                "start end limit",
            ),
            row(OperationMethods::Post, "/silences/preview", "Lists what a silence would keep quiet", "")
                .takes(&[JSON]),
            row(OperationMethods::Post, "/silences/{id}/expire", "Ends a silence", "dryRun"),
            row(
                OperationMethods::Get,
                "/groups",
                "Lists groups with their rules",
                "limit cursor sort filter count fields",
            ),
            row(OperationMethods::Get, "/groups/{namespace}/{name}", "Reads a group with its rules", ""),
            row(OperationMethods::Put, "/groups/{namespace}/{name}", "Puts a group with its rules", "dryRun")
                .takes(&[JSON])
                .also("201"),
            row(OperationMethods::Patch, "/groups/{namespace}/{name}", "Changes a group, or its rules", "dryRun")
                .takes(&[JSON]),
            row(OperationMethods::Delete, "/groups/{namespace}/{name}", "Deletes a group with its rules", "dryRun")
                .gives("204", ""),
            row(OperationMethods::Put, "/groups/{namespace}/{name}/order", "Orders the rules of a group", "dryRun")
                .takes(&[JSON]),
            row(OperationMethods::Get, "/settings", "Says whether edits act by themselves", ""),
            row(OperationMethods::Put, "/settings", "Lets edits act by themselves, or wait for a deploy", "dryRun")
                .takes(&[JSON]),
            row(OperationMethods::Get, "/deploy", "Gives rules as files", "namespace format")
                .gives("200", "application/yaml"),
            row(
                OperationMethods::Post,
                "/deploy",
                "Applies, checks or compares rule files",
                "action namespace source prune dryRun",
            )
            .takes(&["application/yaml", JSON]),
            row(OperationMethods::Get, "/rulepolicy/revisions", "Lists policies that were live", ""),
            row(OperationMethods::Get, "/rulepolicy/revisions/{n}", "Reads a policy that was live", ""),
            row(OperationMethods::Post, "/rulepolicy/revisions/{n}/rollback", "Goes back to a policy", "dryRun"),
            row(OperationMethods::Get, "/rulepolicy/global", "Reads what receivers inherit", ""),
            row(OperationMethods::Put, "/rulepolicy/global", "Puts what receivers inherit", "dryRun").takes(&[JSON]),
            row(OperationMethods::Patch, "/rulepolicy/global", "Changes what receivers inherit", "dryRun")
                .takes(&[JSON]),
            row(OperationMethods::Get, "/rulepolicy/routes/tree", "Shows the tree of routes", ""),
            row(OperationMethods::Put, "/rulepolicy/routes/order", "Orders the routes below one", "dryRun")
                .takes(&[JSON]),
            row(OperationMethods::Post, "/rulepolicy/routes/{id}/move", "Moves a route", "dryRun").takes(&[JSON]),
            row(OperationMethods::Post, "/rulepolicy/receivers/{id}/test", "Sends a message for a test", "")
                .takes(&[JSON]),
            row(OperationMethods::Get, "/rulepolicy/deploy", "Gives the policy as a file", "secrets")
                .gives("200", "application/yaml"),
            row(
                OperationMethods::Post,
                "/rulepolicy/deploy",
                "Applies, checks or compares a policy",
                "action source allowUnsupported secrets dryRun",
            )
            .takes(&["application/yaml", JSON]),
            row(OperationMethods::Post, "/rulepolicy/routes/test", "Says where alerts would go", "").takes(&[JSON]),
            row(OperationMethods::Post, "/rulepolicy/templates/test", "Fills a template", "").takes(&[JSON]),
            row(OperationMethods::Post, "/rulepolicy/receivers/test", "Sends a message for a test", "").takes(&[JSON]),
        ],
    },
];
