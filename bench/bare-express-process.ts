import express from 'express'
import { serve } from './serve.ts'

/** The cost of HTTP with Express alone: parses the body if there is one, and sends a constant answer. */
const app = express()
const submitted = {
  request_id: '5f0c1c5e-3c0a-4c1c-9d5c-1c2d3e4f5a6b',
  status: 'IN_QUEUE',
  queue_position: 0,
  status_url: 'http://127.0.0.1:4000/v1/requests/5f0c1c5e-3c0a-4c1c-9d5c-1c2d3e4f5a6b/status',
  response_url: 'http://127.0.0.1:4000/v1/requests/5f0c1c5e-3c0a-4c1c-9d5c-1c2d3e4f5a6b',
  cancel_url: 'http://127.0.0.1:4000/v1/requests/5f0c1c5e-3c0a-4c1c-9d5c-1c2d3e4f5a6b/cancel',
  cost: 4,
}
app.post('/', express.json(), (_req, res) => void res.json(submitted))
app.get('/', (_req, res) => void res.json({ status: 'IN_QUEUE', queue_position: 0, progress: 0, logs: [] }))
serve(app)
