// What components are made of: Preact with templates instead of JSX. Text is always set as text, never as markup.
import { Fragment, h, render } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export { useCallback, useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from "../vendor/preact-hooks.js";
export { Fragment, render };
export const html = htm.bind(h);
