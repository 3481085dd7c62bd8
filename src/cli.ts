#!/usr/bin/env node
const x: string = process.version; console.log("cli", x, process.argv.slice(2).join(" "));
