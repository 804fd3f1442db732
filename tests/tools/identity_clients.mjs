// Two of npm's clients at the token service, unchanged: openid-client, and keycloak-js' calls for tokens.
//
//   identity_clients.mjs MODULES BASE_URL USER PASSWORD CLIENT SECRET
//
// Prints what they found as JSON; what a client reports as failed ends the script.

import assert from 'node:assert'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [modules, base, user, password, agent, secret] = process.argv.slice(2)
const require = createRequire(pathToFileURL(`${modules}/package.json`))
const load = (name) => import(pathToFileURL(require.resolve(name)).href)
const issuer = `${base}/realms/platform`

async function openid () {
  const client = await load('openid-client')
  const open = { execute: [client.allowInsecureRequests] }
  const machine = await client.discovery(new URL(issuer), agent, undefined, client.ClientSecretBasic(secret), open)
  assert.equal(machine.serverMetadata().issuer, issuer)
  const granted = await client.clientCredentialsGrant(machine, { scope: 'profile' })
  assert.equal(granted.expires_in, 300)
  assert.equal(granted.refresh_token, undefined)
  assert.equal((await client.tokenIntrospection(machine, granted.access_token)).active, true)
  assert.equal((await client.tokenIntrospection(machine, 'nothing')).active, false)
  const posted = await client.discovery(new URL(issuer), agent, undefined, client.ClientSecretPost(secret), open)
  await client.clientCredentialsGrant(posted)
  const wrong = await client.discovery(new URL(issuer), agent, undefined, client.ClientSecretBasic('wrong'), open)
  // With Basic the refusal has a challenge (RFC 6749, 5.2), which this client looks at first.
  await assert.rejects(client.clientCredentialsGrant(wrong), (error) => error.status === 401 && error.cause[0].scheme === 'basic')
  const people = await client.discovery(new URL(issuer), 'ui', undefined, client.None(), open)
  const signedIn = await client.genericGrantRequest(people, 'password', { username: user, password, scope: 'openid' })
  const claims = signedIn.claims ? signedIn.claims() : undefined
  const info = await client.fetchUserInfo(people, signedIn.access_token, client.skipSubjectCheck)
  assert.equal(info.preferred_username, user)
  assert.ok(claims === undefined || claims.sub === info.sub)
  const next = await client.refreshTokenGrant(people, signedIn.refresh_token)
  assert.notEqual(next.refresh_token, signedIn.refresh_token)
  await client.tokenRevocation(people, next.refresh_token)
  await assert.rejects(client.refreshTokenGrant(people, next.refresh_token), { error: 'invalid_grant' })
  return { access: granted.access_token }
}

async function keycloak () {
  // What it wants of a browser.
  globalThis.window = globalThis
  globalThis.location ??= { href: `${base}/ui/`, origin: base }
  Promise.withResolvers ??= function () {
    const held = {}
    held.promise = new Promise((resolve, reject) => Object.assign(held, { resolve, reject }))
    return held
  }
  const { default: Keycloak } = await load('keycloak-js')
  const form = new URLSearchParams({ grant_type: 'password', client_id: 'ui', username: user, password, scope: 'openid' })
  const answer = await fetch(`${issuer}/protocol/openid-connect/token`, { method: 'POST', body: form })
  const token = await answer.json()
  const adapter = { login: async () => {}, logout: async () => {}, register: async () => {}, redirectUri: () => base, accountManagement: async () => {} }
  const kc = new Keycloak({ url: base, realm: 'platform', clientId: 'ui' })
  const signedIn = await kc.init({
    adapter, checkLoginIframe: false, pkceMethod: false, token: token.access_token, refreshToken: token.refresh_token, idToken: token.id_token
  })
  assert.equal(signedIn, true)
  assert.equal(kc.tokenParsed.preferred_username, user)
  const before = kc.refreshToken
  assert.equal(await kc.updateToken(-1), true)
  assert.notEqual(kc.refreshToken, before)
  assert.equal((await kc.loadUserInfo()).preferred_username, user)
  assert.equal(kc.hasRealmRole('admin'), true)
  return { access: kc.token }
}

console.log(JSON.stringify({ openid: await openid(), keycloak: await keycloak() }))
process.exit(0)
