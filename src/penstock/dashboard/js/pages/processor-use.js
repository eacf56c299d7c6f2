// How busy processes are: each says how long it has used a processor since its start, so that two answers tell.
const SPAN_S = 5; // of several polls: what a process says may be half a second old

const samples = new Map();
let newest = null;

// By process: the part of one processor that it used lately; null until that is known.
export function processorUse(processes) {
  if (processes !== newest) add((newest = processes));
  return new Map(processes.map((one) => [one.number, useOf(samples.get(one.pid))]));
}

function add(processes) {
  const nowS = performance.now() / 1000;
  const pids = new Set(processes.map((one) => one.pid));
  for (const pid of [...samples.keys()]) if (!pids.has(pid)) samples.delete(pid);
  for (const { pid, cpu_seconds } of processes) {
    const recent = (samples.get(pid) ?? []).filter((sample) => nowS - sample.timeS <= SPAN_S);
    samples.set(pid, [...recent, { timeS: nowS, cpuS: cpu_seconds }]);
  }
}

function useOf(taken) {
  const [first, last] = [taken[0], taken.at(-1)];
  return last.timeS > first.timeS ? Math.max(0, (last.cpuS - first.cpuS) / (last.timeS - first.timeS)) : null;
}
