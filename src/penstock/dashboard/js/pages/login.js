// Asking for a token.
import { findSession, post } from "../api.js";
import { Field } from "../components/fields.js";
import { Problem } from "../components/states.js";
import { html, useState } from "../html.js";
import { useAction } from "../poll.js";
import { away, useStore } from "../store.js";

export function Login() {
  const [token, setToken] = useState("");
  const work = useAction();
  const isAway = useStore(away);
  async function submitted(event) {
    event.preventDefault();
    if (await work.run(() => post("/v1/login", { token: token.trim() }))) findSession();
  }
  return html`<main class="login">
    <form class="card" onSubmit=${submitted}>
      <div class="login-brand"><img src="/ui/icon.svg" alt="" width="44" height="44" /><h1>Penstock</h1></div>
      <${Field} label="Token" type="password" value=${token} change=${setToken} required autofocus autocomplete="current-password" hint="Whoever runs this server makes tokens with penstock token create." />
      <${Problem} error=${isAway && work.error ? { message: "The server does not answer." } : work.error} />
      <button type="submit" class="primary" disabled=${work.busy || token.trim() === ""}>Log in</button>
    </form>
  </main>`;
}
