// Reads messages of a stream through NATS' text protocol, and prints a line of JSON for each.
// node consumer.js PORT STREAM COUNT
'use strict'
const net = require('net')
const [port, stream, count] = process.argv.slice(2)

const socket = net.connect(Number(port), '127.0.0.1')
socket.on('error', (e) => { console.error(e); process.exit(1) })
let buffer = Buffer.alloc(0)
let printed = 0

socket.on('data', (data) => {
  buffer = Buffer.concat([buffer, data])
  for (;;) {
    const end = buffer.indexOf('\r\n')
    if (end < 0) return
    const words = buffer.subarray(0, end).toString().split(' ')
    const size = /^H?MSG$/.test(words[0]) ? Number(words.at(-1)) + 2 : 0
    if (buffer.length < end + 2 + size) return
    const body = buffer.subarray(end + 2, end + size)
    buffer = buffer.subarray(end + 2 + size)
    take(words, body)
  }
})

function take (words, body) {
  switch (words[0]) {
    case 'INFO': {
      const consumer = { stream_name: stream, config: { deliver_subject: 'reads', deliver_policy: 'all', ack_policy: 'none', replay_policy: 'instant' } }
      const order = Buffer.from(JSON.stringify(consumer))
      socket.write('CONNECT {"verbose":false,"headers":true}\r\nSUB reads 1\r\nSUB answers 2\r\n')
      socket.write(`PUB $JS.API.CONSUMER.CREATE.${stream} answers ${order.length}\r\n${order}\r\n`)
      break
    }
    case 'PING':
      socket.write('PONG\r\n')
      break
    case '-ERR':
      throw new Error(words.join(' '))
    case 'MSG': // the answer about the consumer
      if (JSON.parse(body).error) throw new Error(body.toString())
      break
    case 'HMSG':
      print(words[1], body.subarray(0, Number(words.at(-2))).toString(), body.subarray(Number(words.at(-2))).toString())
  }
}

function print (subject, head, value) {
  const headers = {}
  for (const line of head.split('\r\n').slice(1).filter((line) => line !== '')) {
    const colon = line.indexOf(':')
    headers[line.slice(0, colon)] = line.slice(colon + 1).trim()
  }
  console.log(JSON.stringify({ subject, headers, value }))
  if (++printed === Number(count)) socket.end()
}
