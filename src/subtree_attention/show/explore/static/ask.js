// What the page asks of its server.

async function asked(path, parameters) {
  let answer;
  try {
    answer = await fetch(`/api/${path}?${new URLSearchParams(parameters)}`);
  } catch {
    throw new Error("The server does not answer: is 'sta explore' still running?");
  }
  if (!answer.ok) throw Object.assign(new Error((await answer.json()).error), { status: answer.status });
  return answer;
}

export const ask = async (path, parameters = {}) => (await asked(path, parameters)).json();

export const askBytes = async (path, parameters = {}) => (await asked(path, parameters)).arrayBuffer();
