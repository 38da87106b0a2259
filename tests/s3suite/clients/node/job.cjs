// aws-sdk-js v3: `put BUCKET FOLDER` or `read BUCKET`; prints the digests of what it found. Keys from the environment.
const { createRequire } = require("node:module");
const fs = require("node:fs");
const path = require("node:path");
const { createHash } = require("node:crypto");

const installed = createRequire(process.env.NODE_ROOT + "/");
const { S3Client, GetObjectCommand, paginateListObjectsV2 } = installed("@aws-sdk/client-s3");
const { Upload } = installed("@aws-sdk/lib-storage");

const client = new S3Client({ endpoint: process.env.AWS_ENDPOINT_URL, region: process.env.AWS_REGION, forcePathStyle: true });

async function put(bucket, folder) {
  for (const entry of fs.readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const file = path.join(entry.parentPath ?? entry.path, entry.name);
    const params = { Bucket: bucket, Key: "tree/" + path.relative(folder, file), Body: fs.createReadStream(file) };
    await new Upload({ client, params, partSize: 5 << 20 }).done();
  }
}

async function read(bucket) {
  const found = {};
  for await (const page of paginateListObjectsV2({ client, pageSize: 4 }, { Bucket: bucket, Prefix: "tree/" })) {
    for (const { Key } of page.Contents ?? []) {
      const { Body } = await client.send(new GetObjectCommand({ Bucket: bucket, Key }));
      const hash = createHash("sha256");
      for await (const chunk of Body) hash.update(chunk);
      found[Key.slice("tree/".length)] = hash.digest("hex");
    }
  }
  return found;
}

async function main() {
  const [verb, bucket, folder] = process.argv.slice(2);
  const found = verb === "put" ? await put(bucket, folder) : await read(bucket);
  console.log(JSON.stringify({ version: installed("@aws-sdk/client-s3/package.json").version, found: found ?? {} }));
}

main().catch((error) => { console.error(error); process.exit(1); });
