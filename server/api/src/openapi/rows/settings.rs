//! Operations about configuration beyond its families, about access, and about alerts.

use super::{By, Errors, FORM, Group, JSON, LINES, Row, row};

/// Parameters of neighbours of a resource.
const NEIGHBOURS: &str = "direction depth relationshipTypes resourceTypes limit through";

/// Operations of key transactions. Candidates have a parameter for their owner, which is named after its kind.
const fn of_transactions(of_candidates: &'static str) -> [Row; 3] {
    [
        row(By::Get, "/candidates", "Lists what was detected and is no key transaction", of_candidates),
        row(By::Get, "/{id}/summary", "Gives figures of a key transaction", "start end"),
        row(By::Post, "/from-candidates", "Makes key transactions, all or none", "dryRun")
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
            row(By::Post, "/test-pattern", "Tries a pattern on texts", "").takes(&[JSON]),
            row(By::Post, "/test", "Tries rules on examples or stored spans", "").takes(&[JSON]),
            row(By::Post, "/apply-to-all", "Puts rules to stored spans, as a job", "dryRun")
                .takes(&[JSON])
                .gives("202", JSON),
            row(By::Post, "/{id}/apply-to-all", "Puts a rule to stored spans, as a job", "dryRun")
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
            row(By::Post, "/test", "Follows a process through what is stored", "").takes(&[JSON]),
            row(By::Get, "/{id}/stats", "Gives figures of a process and its steps", "start end"),
            row(By::Get, "/{id}/instances", "Lists instances of a process", "start end state limit"),
        ],
    },
    Group {
        tag: "jobs",
        at: &["/platform-api/jobs"],
        errors: Errors::Problem,
        rows: &[row(By::Get, "/{id}", "Says how far a job is", ""), row(By::Delete, "/{id}", "Cancels a job", "")],
    },
    Group {
        tag: "business-processes",
        at: &["/business-processes/{id}/steps"],
        errors: Errors::Problem,
        rows: &[
            row(By::Get, "", "Lists the steps of a process", "").also("304"),
            row(By::Post, "", "Adds a step", "dryRun").takes(&[JSON]).gives("201", JSON),
            row(By::Put, "/order", "Orders the steps", "dryRun").takes(&[JSON]),
            row(By::Get, "/{step}", "Reads a step", "").also("304"),
            row(By::Put, "/{step}", "Replaces a step", "dryRun").takes(&[JSON]),
            row(By::Patch, "/{step}", "Changes a step", "dryRun").takes(&[JSON, "application/merge-patch+json"]),
            row(By::Delete, "/{step}", "Deletes a step", "dryRun").gives("204", ""),
            row(By::Post, "/{step}/move", "Moves a step", "dryRun").takes(&[JSON]),
        ],
    },
    Group {
        tag: "configuration",
        at: &["/platform-api"],
        errors: Errors::Problem,
        rows: &[
            row(By::Get, "/apdex-thresholds/effective", "Says which threshold counts", "service! operation signal"),
            row(By::Post, "/segments/preview", "Counts what a segment leaves, by service", "").takes(&[JSON]),
            row(By::Post, "/data-extraction-rules/test", "Tries a rule on records", "").takes(&[JSON]),
            row(By::Get, "/data-extraction-rules/{id}/stats", "Gives figures of a rule", ""),
            row(By::Get, "/resources/summary", "Counts resources", "groupBy"),
            row(By::Get, "/resources/{id}/summary", "Says how a resource does", "start end"),
            row(By::Post, "/resources/dependency-graph", "Gives the graph around resources", "").takes(&[JSON]),
            row(By::Get, "/resources/{id}/neighbours", "Lists what a resource is related to", NEIGHBOURS),
            row(By::Get, "/resources/{id}/neighbors", "Lists what a resource is related to", NEIGHBOURS),
            row(
                By::Get,
                "/resources/{id}/dependency-graph",
                "Gives the graph around a resource",
                "direction depth relationshipTypes resourceTypes ciClasses at limit through",
            ),
            row(By::Post, "/resources/{id}/merge", "Merges resources into one", "dryRun").takes(&[JSON]),
        ],
    },
    Group {
        tag: "access",
        at: &["/platform-api/rbac"],
        errors: Errors::Problem,
        rows: &[
            row(By::Get, "/me", "Says who calls", ""),
            row(By::Put, "/me/password", "Changes the own password", "dryRun").takes(&[JSON]).gives("2XX", ""),
            row(By::Get, "/permissions", "Lists rights and domains", ""),
            row(By::Post, "/permissions/check", "Says what somebody may do", "").takes(&[JSON]),
            row(By::Get, "/users/{id}/effective-permissions", "Gives what a user may do", ""),
            row(By::Post, "/users/{id}/reset-password", "Gives a user a new password", "dryRun")
                .takes(&[JSON])
                .gives("2XX", JSON),
            row(By::Post, "/users/{id}/logout", "Ends the sessions of a user", "dryRun").gives("2XX", ""),
            row(By::Get, "/service-accounts/{id}/effective-permissions", "Gives what an account may do", ""),
            row(By::Post, "/service-accounts/{id}/rotate-secret", "Gives an account a new secret", "dryRun")
                .gives("2XX", JSON),
            row(
                By::Get,
                "/audit",
                "Lists what was changed, by whom",
                "start end actor action family entityId outcome filter q sort fields count limit cursor",
            ),
            row(
                By::Get,
                "/audit/export",
                "Gives the audit as lines",
                "start end actor action family entityId outcome filter q",
            )
            .gives("200", LINES),
            row(By::Get, "/audit/verify", "Checks that the audit is whole", ""),
            row(By::Post, "/keys/rotate", "Makes a new signing key", "revokeOld dryRun").gives("2XX", JSON),
        ],
    },
    Group {
        tag: "access",
        at: &["/realms/platform"],
        errors: Errors::Token,
        rows: &[
            row(By::Get, "", "Gives the realm's key and addresses", ""),
            row(By::Get, "/.well-known/openid-configuration", "Describes the token service", ""),
            row(By::Get, "/protocol/openid-connect/certs", "Gives the signing keys", ""),
            row(By::Post, "/protocol/openid-connect/token", "Gives tokens", "").takes(&[FORM]),
            row(By::Form, "/protocol/openid-connect/userinfo", "Says whose the token is", ""),
            row(By::Post, "/protocol/openid-connect/token/introspect", "Says what a token is", "").takes(&[FORM]),
            row(By::Post, "/protocol/openid-connect/revoke", "Ends a token", "").takes(&[FORM]).gives("2XX", ""),
            row(
                By::Form,
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
            row(By::Get, "/status", "Says how alerting stands", ""),
            row(By::Get, "/receivers", "Lists receivers", "receiver_matchers"),
            row(
                By::Get,
                "/alerts",
                "Lists alerts",
                "active silenced inhibited unprocessed filter receiver receiver_matchers",
            ),
            row(By::Post, "/alerts", "Takes alerts", "").takes(&[JSON]).gives("200", ""),
            row(By::Post, "/alertprocess", "Takes an envelope of a webhook", "").takes(&[JSON]).gives("200", ""),
            row(
                By::Get,
                "/alerts/groups",
                "Lists groups of alerts",
                "active silenced inhibited muted filter receiver receiver_matchers",
            ),
            row(By::Get, "/silences", "Lists silences", "filter active pending expired"),
            row(By::Post, "/silences", "Makes or changes a silence", "").takes(&[JSON]),
            row(By::Get, "/silence/{id}", "Reads a silence", ""),
            row(By::Delete, "/silence/{id}", "Ends a silence", "").gives("200", ""),
        ],
    },
    Group {
        tag: "alerting",
        at: &["/rulesapi"],
        errors: Errors::Problem,
        rows: &[
            row(By::Post, "/rules/test", "Tries rules on series", "").takes(&[JSON, "application/yaml"]),
            row(By::Post, "/rules/{id}/clone", "Copies a rule", "dryRun").takes(&[JSON]).gives("201", JSON),
            row(By::Post, "/rules/unit-test", "Runs unit tests of rules", "").takes(&[JSON]),
            row(By::Get, "/rules/{id}/state", "Says how a rule goes", ""),
            row(By::Get, "/rules/{id}/alerts-history", "Lists changes of a rule's alerts", "start end limit"),
            row(By::Post, "/silences/preview", "Lists what a silence would keep quiet", "").takes(&[JSON]),
            row(By::Post, "/silences/{id}/expire", "Ends a silence", "dryRun"),
            row(By::Get, "/groups", "Lists groups with their rules", "limit cursor sort filter count fields"),
            row(By::Get, "/groups/{namespace}/{name}", "Reads a group with its rules", ""),
            row(By::Put, "/groups/{namespace}/{name}", "Puts a group with its rules", "dryRun")
                .takes(&[JSON])
                .also("201"),
            row(By::Patch, "/groups/{namespace}/{name}", "Changes a group, or its rules", "dryRun").takes(&[JSON]),
            row(By::Delete, "/groups/{namespace}/{name}", "Deletes a group with its rules", "dryRun").gives("204", ""),
            row(By::Put, "/groups/{namespace}/{name}/order", "Orders the rules of a group", "dryRun").takes(&[JSON]),
            row(By::Get, "/settings", "Says whether edits act by themselves", ""),
            row(By::Put, "/settings", "Lets edits act by themselves, or wait for a deploy", "dryRun").takes(&[JSON]),
            row(By::Get, "/deploy", "Gives rules as files", "namespace format").gives("200", "application/yaml"),
            row(By::Post, "/deploy", "Applies, checks or compares rule files", "action namespace source prune dryRun")
                .takes(&["application/yaml", JSON]),
            row(By::Get, "/rulepolicy/revisions", "Lists policies that were live", ""),
            row(By::Get, "/rulepolicy/revisions/{n}", "Reads a policy that was live", ""),
            row(By::Post, "/rulepolicy/revisions/{n}/rollback", "Goes back to a policy", "dryRun"),
            row(By::Get, "/rulepolicy/global", "Reads what receivers inherit", ""),
            row(By::Put, "/rulepolicy/global", "Puts what receivers inherit", "dryRun").takes(&[JSON]),
            row(By::Patch, "/rulepolicy/global", "Changes what receivers inherit", "dryRun").takes(&[JSON]),
            row(By::Get, "/rulepolicy/routes/tree", "Shows the tree of routes", ""),
            row(By::Put, "/rulepolicy/routes/order", "Orders the routes below one", "dryRun").takes(&[JSON]),
            row(By::Post, "/rulepolicy/routes/{id}/move", "Moves a route", "dryRun").takes(&[JSON]),
            row(By::Post, "/rulepolicy/receivers/{id}/test", "Sends a message for a test", "").takes(&[JSON]),
            row(By::Get, "/rulepolicy/deploy", "Gives the policy as a file", "secrets")
                .gives("200", "application/yaml"),
            row(
                By::Post,
                "/rulepolicy/deploy",
                "Applies, checks or compares a policy",
                "action source allowUnsupported secrets dryRun",
            )
            .takes(&["application/yaml", JSON]),
            row(By::Post, "/rulepolicy/routes/test", "Says where alerts would go", "").takes(&[JSON]),
            row(By::Post, "/rulepolicy/templates/test", "Fills a template", "").takes(&[JSON]),
            row(By::Post, "/rulepolicy/receivers/test", "Sends a message for a test", "").takes(&[JSON]),
        ],
    },
];
