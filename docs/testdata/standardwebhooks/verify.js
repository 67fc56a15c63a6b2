'use strict';
// Reads {secret, body, headers} as JSON, and prints what standardwebhooks returns: the parsed body, or an error.
const { Webhook } = require('standardwebhooks');
const { text } = require('node:stream/consumers');

async function main() {
  const { secret, body, headers } = JSON.parse(await text(process.stdin));
  try {
    console.log(JSON.stringify({ callback: new Webhook(secret).verify(body, headers) }));
  } catch (refused) {
    console.log(JSON.stringify({ refused: refused.message }));
  }
}

main();
