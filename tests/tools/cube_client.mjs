// Cube's published client, unchanged, against our API: one line per point that holds, an error where one does not.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [modules, apiUrl] = process.argv.slice(2);
const require = createRequire(`${modules}/package.json`);
const load = (name) => import(pathToFileURL(require.resolve(name)).href).then((m) => ({ ...m.default, ...m }));
const { default: exported, ...core } = await load('@cubejs-client/core');
const cube = typeof exported === 'function' ? exported : exported.default;
const { formatValue } = await load('@cubejs-client/core/format');

const api = cube('Bearer none', { apiUrl });
const day = { dimension: 'Orders.day', granularity: 'day', dateRange: ['2026-03-01', '2026-03-04'] };
const query = { measures: ['Orders.count', 'Orders.amount'], dimensions: ['Orders.kind'], timeDimensions: [day], order: { 'Orders.day': 'asc', 'Orders.kind': 'asc' } };
const point = (name) => console.log(name);

const rows = (await api.load(query)).rawData();
assert.deepEqual(rows.map((r) => [r['Orders.day.day'], r['Orders.kind'], Number(r['Orders.count']), Number(r['Orders.amount'])]), [
  ['2026-03-01T00:00:00.000', 'book', 2, 30.5], ['2026-03-01T00:00:00.000', 'pen', 1, 2],
  ['2026-03-03T00:00:00.000', 'book', 1, 12.25], ['2026-03-03T00:00:00.000', 'pen', 2, 5],
]);
for (const format of ['compact', 'columnar']) {
  assert.deepEqual((await api.load(query, {}, undefined, format)).rawData(), rows, format);
}
point('three formats');

const set = await api.load(query);
assert.deepEqual(set.chartPivot().map((p) => [p.x, p['book,Orders.count'], p['pen,Orders.amount']]), [
  ['2026-03-01T00:00:00.000', 2, 2], ['2026-03-02T00:00:00.000', 0, 0],
  ['2026-03-03T00:00:00.000', 1, 5], ['2026-03-04T00:00:00.000', 0, 0],
]);
point('chartPivot');
assert.equal(set.tablePivot().length, 4);
assert.deepEqual(set.tableColumns().map((c) => c.key), ['Orders.day.day', 'Orders.kind', 'Orders.count', 'Orders.amount']);
point('tablePivot');
assert.deepEqual(set.series().map((s) => s.title), ['book, Orders Count', 'book, Orders Amount', 'pen, Orders Count', 'pen, Orders Amount']);
point('series');

const drill = set.drillDown({ xValues: ['2026-03-01T00:00:00.000'], yValues: ['book', 'Orders.count'] });
assert.deepEqual(drill.dimensions, ['Orders.id', 'Orders.kind']);
assert.deepEqual((await api.load(drill)).rawData().map((r) => r['Orders.id']).sort(), ['o1', 'o2']);
point('drillDown');

const compared = await api.load({ measures: ['Orders.count'], timeDimensions: [{ dimension: 'Orders.day', compareDateRange: [['2026-03-01', '2026-03-02'], ['2026-03-03', '2026-03-04']] }] });
assert.deepEqual(compared.decompose().map((one) => Number(one.rawData()[0]['Orders.count'])), [3, 3]);
assert.deepEqual(compared.series().length, 2);
point('compare');

const blended = await api.load([{ measures: ['Orders.count'], timeDimensions: [day] }, { measures: ['Orders.amount'], timeDimensions: [day] }]);
assert.deepEqual(blended.chartPivot().map((p) => [p['Orders.count'], p['Orders.amount']]), [[3, 32.5], [0, 0], [3, 17.25], [0, 0]]);
point('blend');

const meta = await api.meta();
assert.equal(meta.resolveMember('Orders.amount', 'measures').shortTitle, 'Amount');
assert.ok(meta.resolveMember('Orders.nothing', 'measures').error);
assert.equal(meta.defaultTimeDimensionNameFor('Orders.count'), 'Orders.day');
assert.ok(meta.filterOperatorsForMember('Orders.kind', 'dimensions').some((o) => o.name === 'contains'));
assert.ok(meta.filterOperatorsForMember('Orders.day', 'dimensions').some((o) => o.name === 'inDateRange'));
assert.equal((await api.meta({ onlyViews: true })).cubes.length >= 0, true);
point('meta');

const text = (await api.sql(query)).sql();
assert.match(text, /select/i);
point('sql');
const dry = await api.dryRun(query);
assert.equal(dry.queryType, 'regularQuery');
assert.deepEqual(dry.queryOrder, [{ 'Orders.day': 'asc' }, { 'Orders.kind': 'asc' }]);
point('dryRun');

const statement = 'SELECT kind, MEASURE("count") AS n, MEASURE("amount") AS amount FROM "Orders" GROUP BY 1 ORDER BY 1';
const asked = await api.cubeSql(statement);
const columns = [{ name: 'kind', column_type: 'String' }, { name: 'n', column_type: 'Int64' }, { name: 'amount', column_type: 'Double' }];
assert.deepEqual([asked.schema, asked.data], [columns, [['book', '3', 42.75], ['pen', '3', 7]]]);
assert.ok(asked.lastRefreshTime);
assert.deepEqual((await api.cubeSql('SELECT kind FROM "Orders" WHERE kind = \'none\'')).data, []);
await assert.rejects(api.cubeSql('SELECT kind FROM "Order"'), /there is no table `Order`.*did you mean/);
const streamed = [];
for await (const chunk of api.cubeSqlStream(statement)) streamed.push(chunk);
assert.deepEqual(streamed[0].schema, columns);
assert.deepEqual(streamed.slice(1).flatMap((c) => c.data), asked.data);
point('cubeSql');

const seen = await new Promise((resolve, reject) => {
  let calls = 0;
  const watch = api.subscribe(query, {}, (error, result) => {
    if (error) return reject(error);
    calls += 1;
    watch.unsubscribe().then(() => resolve([calls, result.rawData().length]));
  });
});
assert.deepEqual(seen, [1, 4]);
point('subscribe');

await assert.rejects(api.load({ measures: ['Orders.cuont'] }), (e) => {
  assert.equal(e.status, 400);
  assert.match(e.toString(), /Orders\.cuont.*did you mean `Orders\.count`/);
  return true;
});
point('error');

const many = { ...query, filters: [{ member: 'Orders.kind', operator: 'equals', values: ['book', ...Array.from({ length: 300 }, (_, i) => `no-such-kind-${i}`)] }] };
let method;
const before = globalThis.fetch;
globalThis.fetch = (url, options) => { method = options.method; return before(url, options); };
assert.deepEqual((await api.load(many)).rawData(), rows.filter((r) => r['Orders.kind'] === 'book'));
assert.equal(method, 'POST');
globalThis.fetch = before;
point('long queries');

const impatient = cube('Bearer none', { apiUrl, headers: { 'X-Wait': '0' } });
const told = [];
const slow = await impatient.load({ measures: ['Pairs.different'], limit: 1 + Math.floor(Math.random() * 10_000) }, { progressCallback: (p) => told.push(p.stage()) });
assert.equal(Number(slow.rawData()[0]['Pairs.different']), 6);
assert.ok(told.length >= 2, `it was told to wait ${told.length} times`);
assert.equal(told[0], 'Executing query');
point('Continue wait');

const { annotation } = (await api.load({ measures: ['Orders.share', 'Orders.price'] })).loadResponse.results[0];
const shown = (member, value) => formatValue(value, { ...annotation.measures[member], locale: 'en-US' });
assert.equal(shown('Orders.share', 0.25), '25%');
assert.equal(shown('Orders.price', 12.25), '$12.25');
point('format');
