//! Simulates the demo shop: twelve services, their databases, a queue and the browsers of its customers.
//!
//! Everything depends only on the time: a visit each second, slow periods of the product database, a payment provider
//! that fails for a while, and a deployment of `checkout` each hour, whose first minutes go badly.

/// Services that send telemetry.
pub(super) const SERVICES: [&str; 12] = [
    "web",
    "gateway",
    "storefront",
    "catalog",
    "search",
    "recommendation",
    "cart",
    "checkout",
    "payment",
    "shipping",
    "orders",
    "notification",
];

const MS: i64 = 1_000_000;
const HOUR_S: i64 = 3_600;

/// A recurring period: interval, offset of its first second, length; all in seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spell(i64, i64, i64);

/// The product database is slow.
pub(super) const SLOW_DB: Spell = Spell(1_200, 300, 150);
/// The payment provider fails.
pub(super) const PAYMENT_DOWN: Spell = Spell(1_800, 1_000, 120);
/// A new version of `checkout` has just been deployed.
pub(super) const DEPLOYED: Spell = Spell(HOUR_S, 1_500, 240);

impl Spell {
    /// Whether a time in seconds lies in the period.
    pub(super) fn is_on(self, second: i64) -> bool {
        (second - self.1).rem_euclid(self.0) < self.2
    }

    /// Whether the period begins at this second.
    pub(super) fn begins(self, second: i64) -> bool {
        (second - self.1).rem_euclid(self.0) == 0
    }

    /// How many seconds of the period have passed since the day began; never decreases within a day.
    pub(super) fn seconds(self, second: f64) -> f64 {
        let (period, first, len) = (self.0 as f64, self.1 as f64, self.2 as f64);
        let since = |s: f64| ((s - first) / period).floor() * len + (s - first).rem_euclid(period).min(len);
        since(second.rem_euclid(86_400.0)) - since(0.0)
    }
}

/// The version of `checkout` at a time in seconds.
pub(super) fn checkout_version(second: i64) -> String {
    format!("1.{}.0", (second - DEPLOYED.1).div_euclid(HOUR_S).rem_euclid(100))
}

/// An event of a span, which is also a log row.
#[derive(Debug, Clone)]
pub(super) struct Note {
    pub(super) level: &'static str,
    pub(super) text: String,
}

/// One span of a visit.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) parent: Option<usize>,
    pub(super) service: &'static str,
    pub(super) name: &'static str,
    pub(super) kind: u8,
    /// In Unix nanoseconds, as `end`.
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) error: Option<&'static str>,
    pub(super) tags: Vec<(&'static str, String)>,
    pub(super) numbers: Vec<(&'static str, i64)>,
    pub(super) notes: Vec<Note>,
}

/// A random generator with a fixed seed, so that a second always yields the same visit.
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// A random duration in nanoseconds, around this many milliseconds and sometimes much longer.
    fn about(&mut self, ms: i64) -> i64 {
        let share = 60 + self.below(80) as i64;
        let tail = if self.below(50) == 0 { 4 } else { 1 };
        ms * MS * share / 100 * tail
    }
}

/// A visit that is being simulated: its spans, and a clock.
struct Visit {
    steps: Vec<Step>,
    dice: Dice,
    now: i64,
    second: i64,
}

impl Visit {
    fn open(&mut self, parent: Option<usize>, service: &'static str, name: &'static str, kind: u8) -> usize {
        self.now += self.dice.about(1);
        self.steps.push(Step {
            parent,
            service,
            name,
            kind,
            start: self.now,
            end: self.now,
            error: None,
            tags: Vec::new(),
            numbers: Vec::new(),
            notes: Vec::new(),
        });
        self.steps.len() - 1
    }

    fn close(&mut self, at: usize) {
        self.now += self.dice.about(1);
        self.steps[at].end = self.now;
    }

    fn tag(&mut self, at: usize, key: &'static str, value: impl Into<String>) {
        self.steps[at].tags.push((key, value.into()));
    }

    fn note(&mut self, at: usize, level: &'static str, text: impl Into<String>) {
        self.steps[at].notes.push(Note { level, text: text.into() });
    }

    /// Marks a span and all its ancestors as failed.
    fn fail(&mut self, at: usize, message: &'static str) {
        let mut next = Some(at);
        while let Some(i) = next {
            self.steps[i].error = Some(message);
            if self.steps[i].service != "web" && matches!(self.steps[i].kind, 2 | 3) {
                self.steps[i].numbers.retain(|n| n.0 != "http.response.status_code");
                self.steps[i].numbers.push(("http.response.status_code", 502));
            }
            next = self.steps[i].parent;
        }
    }

    /// An HTTP call between services; returns the callee's span.
    fn call(&mut self, from: usize, service: &'static str, name: &'static str) -> (usize, usize) {
        let caller = self.steps[from].service;
        let client = self.open(Some(from), caller, name, 3);
        self.tag(client, "server.address", service);
        let server = self.open(Some(client), service, name, 2);
        let (method, route) = name.split_once(' ').unwrap_or(("GET", name));
        for at in [client, server] {
            self.tag(at, "http.request.method", method);
            self.tag(at, "http.route", route);
            self.steps[at].numbers.push(("http.response.status_code", 200));
        }
        (client, server)
    }

    fn end_call(&mut self, (client, server): (usize, usize)) {
        self.close(server);
        self.close(client);
    }

    /// A call to a database or a similar system that sends no spans itself.
    fn store(&mut self, from: usize, system: &'static str, namespace: &'static str, name: &'static str, ms: i64) {
        let at = self.open(Some(from), self.steps[from].service, name, 3);
        self.tag(at, "db.system.name", system);
        self.tag(at, "db.namespace", namespace);
        self.tag(at, "db.query.text", name);
        let slow = if namespace == "products" && SLOW_DB.is_on(self.second) { 12 } else { 1 };
        if slow > 1 {
            self.note(at, "warn", format!("slow query on {namespace}: {name}"));
        }
        self.now += self.dice.about(ms * slow);
        self.close(at);
    }
}

/// Simulates the `n`-th visit of a second.
pub(super) fn visit(second: i64, n: u64) -> Vec<Step> {
    let mut dice = Dice((second as u64) << 8 | n);
    let start = second * 1_000 * MS + (dice.below(900) as i64) * MS;
    let what = dice.below(100);
    let mut v = Visit { steps: Vec::with_capacity(24), dice, now: start, second };
    let browser = match what {
        0..40 => v.open(None, "web", "open home page", 1),
        40..60 => v.open(None, "web", "search products", 1),
        60..80 => v.open(None, "web", "add to cart", 1),
        _ => v.open(None, "web", "place order", 1),
    };
    let customer = format!("c-{}", v.dice.below(400));
    v.tag(browser, "user.id", customer.clone());
    let session = v.dice.below(5_000);
    v.tag(browser, "session.id", format!("s-{session}"));
    match what {
        0..40 => home(&mut v, browser),
        40..60 => search(&mut v, browser),
        60..80 => add(&mut v, browser),
        _ => order(&mut v, browser, &customer),
    }
    let longest = v.steps.iter().filter(|s| s.service == "web").map(|s| s.end).max().unwrap_or(v.now);
    v.steps[browser].end = longest;
    v.steps
}

fn through_gateway(v: &mut Visit, from: usize, name: &'static str) -> (usize, usize) {
    let call = v.call(from, "gateway", name);
    v.note(call.1, "info", name);
    call
}

fn home(v: &mut Visit, from: usize) {
    let gateway = through_gateway(v, from, "GET /");
    let front = v.call(gateway.1, "storefront", "GET /");
    let products = v.call(front.1, "catalog", "GET /products");
    v.store(products.1, "postgresql", "products", "SELECT products", 6);
    v.end_call(products);
    let more = v.call(front.1, "recommendation", "GET /recommendations");
    v.store(more.1, "redis", "profiles", "GET profile", 1);
    v.end_call(more);
    v.end_call(front);
    v.end_call(gateway);
}

fn search(v: &mut Visit, from: usize) {
    let gateway = through_gateway(v, from, "GET /search");
    let found = v.call(gateway.1, "search", "GET /search");
    v.store(found.1, "elasticsearch", "product-index", "search products", 14);
    v.end_call(found);
    v.end_call(gateway);
}

fn add(v: &mut Visit, from: usize) {
    let gateway = through_gateway(v, from, "POST /cart");
    let cart = v.call(gateway.1, "cart", "POST /cart");
    let product = v.call(cart.1, "catalog", "GET /products/{id}");
    v.store(product.1, "postgresql", "products", "SELECT product", 3);
    v.end_call(product);
    v.store(cart.1, "redis", "carts", "HSET cart", 1);
    v.end_call(cart);
    v.end_call(gateway);
}

fn order(v: &mut Visit, from: usize, customer: &str) {
    let gateway = through_gateway(v, from, "POST /checkout");
    let checkout = v.call(gateway.1, "checkout", "POST /checkout");
    v.note(checkout.1, "info", format!("order of customer {customer}"));
    let cart = v.call(checkout.1, "cart", "GET /cart");
    v.store(cart.1, "redis", "carts", "HGETALL cart", 1);
    v.end_call(cart);
    let quote = v.call(checkout.1, "shipping", "POST /quotes");
    v.now += v.dice.about(5);
    v.end_call(quote);
    let payment = v.call(checkout.1, "payment", "POST /charges");
    let bank = v.open(Some(payment.1), "payment", "POST /v1/charges", 3);
    v.tag(bank, "server.address", "bank.example");
    v.tag(bank, "http.request.method", "POST");
    v.now += v.dice.about(40);
    v.close(bank);
    let refused = v.dice.below(100) < if PAYMENT_DOWN.is_on(v.second) { 60 } else { 2 };
    if refused {
        v.note(payment.1, "error", format!("charge of customer {customer} failed: bank.example does not answer"));
        v.fail(bank, "bank.example does not answer");
    }
    v.end_call(payment);
    let broken = !refused && DEPLOYED.is_on(v.second) && v.dice.below(100) < 35;
    if broken {
        let version = checkout_version(v.second);
        v.note(checkout.1, "error", format!("cannot write order: unknown column `gift` (checkout {version})"));
        v.fail(checkout.1, "unknown column `gift`");
    }
    if !refused && !broken {
        v.store(checkout.1, "postgresql", "orderbook", "INSERT order", 4);
        let sent = v.open(Some(checkout.1), "checkout", "orders publish", 4);
        v.tag(sent, "messaging.system", "kafka");
        v.tag(sent, "messaging.destination.name", "orders");
        v.close(sent);
        let back = v.now;
        v.now += v.dice.about(30);
        fulfil(v, sent, customer);
        v.now = back;
    }
    v.end_call(checkout);
    v.end_call(gateway);
}

/// Simulates what follows an order after the customer has the response.
fn fulfil(v: &mut Visit, sent: usize, customer: &str) {
    let taken = v.open(Some(sent), "orders", "orders process", 5);
    v.tag(taken, "messaging.system", "kafka");
    v.tag(taken, "messaging.destination.name", "orders");
    v.store(taken, "postgresql", "orderbook", "UPDATE order", 3);
    let mail = v.call(taken, "notification", "POST /mails");
    v.note(mail.1, "info", format!("confirmation sent to customer {customer}"));
    v.now += v.dice.about(8);
    v.end_call(mail);
    v.close(taken);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn visits_are_whole_and_repeat() {
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        for second in 1_700_000_000..1_700_000_400 {
            let steps = visit(second, 0);
            assert_eq!(format!("{steps:?}"), format!("{:?}", visit(second, 0)));
            assert!(steps[0].parent.is_none());
            for (i, step) in steps.iter().enumerate() {
                assert!(step.start < step.end, "{step:?}");
                assert!(step.parent.is_none_or(|p| p < i && steps[p].start <= step.start), "{step:?}");
                seen.insert(step.service);
            }
        }
        assert_eq!(seen.len(), SERVICES.len());
    }

    #[test]
    fn spells_add_up() {
        let counted = (0..7_200).filter(|s| SLOW_DB.is_on(*s)).count() as f64;
        assert!((SLOW_DB.seconds(7_200.0) - counted).abs() < 1.0);
        let values: Vec<f64> = (0..86_400).map(|s| DEPLOYED.seconds(f64::from(s))).collect();
        assert!(values.windows(2).all(|w| w[0] <= w[1]));
        assert!(DEPLOYED.begins(1_500) && DEPLOYED.is_on(1_739) && !DEPLOYED.is_on(1_740));
        assert_ne!(checkout_version(1_499), checkout_version(1_500));
    }

    #[test]
    fn spells_come_again() {
        for (spell, on, off) in [
            (SLOW_DB, [300, 449, 1_500, -900], [299, 450, 0, -901]),
            (PAYMENT_DOWN, [1_000, 1_119, 2_800, -800], [999, 1_120, 0, -801]),
            (DEPLOYED, [1_500, 1_739, 5_100, -2_100], [1_499, 1_740, 0, -2_101]),
        ] {
            assert!(on.iter().all(|s| spell.is_on(*s)) && !off.iter().any(|s| spell.is_on(*s)), "{spell:?}");
            assert!(spell.begins(on[0]) && spell.begins(on[2]) && !spell.begins(on[1]) && !spell.begins(off[2]));
        }
        // Each day starts anew.
        assert_eq!((SLOW_DB.seconds(0.0), SLOW_DB.seconds(86_400.0)), (0.0, 0.0));
        assert_eq!((SLOW_DB.seconds(300.0), SLOW_DB.seconds(310.0), SLOW_DB.seconds(1_000.0)), (0.0, 10.0, 150.0));
        assert_eq!([1_499, 1_500, 5_099, 5_100].map(checkout_version), ["1.99.0", "1.0.0", "1.0.0", "1.1.0"]);
    }

    /// A failure makes all callers fail, and a failed request has one status.
    #[test]
    fn failures_go_up() {
        let status = |step: &Step| {
            let codes = step.numbers.iter().filter(|(name, _)| *name == "http.response.status_code");
            codes.map(|(_, code)| *code).collect::<Vec<_>>()
        };
        let mut failed = 0;
        for second in 1_700_000_000..1_700_001_000 {
            let steps = visit(second, 0);
            for step in &steps {
                let is_call = step.service != "web" && matches!(step.kind, 2 | 3);
                match step.error {
                    Some(_) => {
                        failed += 1;
                        assert!(step.parent.is_none_or(|p| steps[p].error.is_some()), "{step:?}");
                        assert!(!is_call || status(step) == [502], "{step:?}");
                    }
                    None => assert!(matches!(status(step)[..], [] | [200]), "{step:?}"),
                }
            }
        }
        assert!(failed > 50, "{failed}");
    }

    /// Orders fail more often while the payment provider fails.
    #[test]
    fn bad_minutes_are_bad() {
        let share = |is_bad: bool| {
            let is_wanted = |s: &i64| PAYMENT_DOWN.is_on(*s) == is_bad && !DEPLOYED.is_on(*s);
            let seconds = (1_700_000_000..1_700_010_000).filter(is_wanted).take(360);
            let orders = seconds.map(|second| visit(second, 0)).filter(|steps| steps[0].name == "place order");
            let failed: Vec<bool> = orders.map(|steps| steps[0].error.is_some()).collect();
            failed.iter().filter(|is_failed| **is_failed).count() as f64 / failed.len() as f64
        };
        let (good, bad) = (share(false), share(true));
        assert!(good < 0.1 && bad > 0.35, "{good} {bad}");
    }
}
