"""Writes PERFORMANCE.md from what report.sh has measured. Owns words and tables; measures nothing.

What was found about a missed aim is written by hand, in `loadtest/findings.md`, and put under the tables as it is.
"""

import json
import pathlib
import re
import sys
import textwrap

MIB = 1 << 20


def load(folder, name):
    path = folder / name
    # Empty where a measurement did not end.
    return json.loads(path.read_text()) if path.exists() and path.stat().st_size else None


def middle(figures):
    ordered = sorted(figures)
    count = len(ordered)
    if not count:
        return None
    return ordered[count // 2] if count % 2 else (ordered[count // 2 - 1] + ordered[count // 2]) / 2


def per_round(side, figure):
    """The middle of a figure over rounds; `figure` gives None where there is none."""
    found = [figure(round_) for round_ in side["rounds"]]
    return middle([one for one in found if one is not None])


def rate(side, name):
    return per_round(side, lambda round_: round_[name])


def micros(side, what, percentile):
    return per_round(side, lambda round_: round_[what][percentile] if round_[what] else None)


def ratio(record, name):
    found = record["ratios"].get(name)
    return f"{found['mean']:.2f} ({found['low']:.2f}–{found['high']:.2f})" if found else "-"


def verdict(met):
    return "met" if met else "**missed**"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]) + "\n"


def number(figure, digits=0):
    return "-" if figure is None else f"{figure:,.{digits}f}"


def errors(record):
    found = {}
    for side in record["sides"]:
        for kind, count in side["all"]["errors"].items():
            found[f"{side['label']}: {kind}"] = count
    return found


def wrapped(text: str) -> str:
    """Prose and items of lists at 100 columns; rows of tables and headings as they are."""
    lines, is_shown_as_is = [], False
    for line in text.split("\n"):
        if line.startswith("```"):
            is_shown_as_is = not is_shown_as_is
        if is_shown_as_is or len(line) <= 100 or line.startswith(("|", "#")):
            lines.append(line)
        else:
            indent = "  " if line.startswith(("- ", "  ")) else ""
            lines += textwrap.wrap(line, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


class Report:
    def __init__(self, folder):
        self.folder, self.aims, self.text, self.limits = folder, [], [], {}

    def record(self, name):
        record = load(self.folder, f"{name}.json")
        if record:
            for limit in record["limits"]:
                self.limits.setdefault(limit.split(": ", 1)[1].split("; ")[0].split(": ")[0].rstrip("0123456789. %"), []).append(name)
            if errors(record):
                self.text.append(f"{name}: {errors(record)}\n")
        return record

    def aim(self, what, aim, found, met):
        self.aims.append([what, aim, found, verdict(met)])

    def add(self, *paragraphs):
        self.text += [paragraph + "\n" for paragraph in paragraphs]

    def beside_nginx(self, name, size, what, aim):
        """A row of a hot scenario beside nginx, and its aim; none where it was not measured."""
        record = self.record(name)
        if not record:
            return []
        ours, theirs = record["sides"]
        found = record["ratios"]["server_cpu_per_request"]["mean"]
        self.aim(f"hot GET of {size}, {what}, server CPU ÷ nginx", f"≤ {aim}", ratio(record, "server_cpu_per_request"), found <= aim)
        return [[size, *(number(rate(side, "server_cpu_us_per_request"), 1) for side in (theirs, ours)), ratio(record, "server_cpu_per_request"),
                 *(number(rate(side, "requests_per_second")) for side in (theirs, ours)), ratio(record, "requests_per_second"),
                 *(number(micros(side, "latency", "p99")) for side in (theirs, ours))]]

    def hot(self):
        sizes = ["4k", "128k", "1m", "16m"]
        setups = [("hot", "one process", "`verbs3 dev`, with leases and pages that are kept, as below.", [1.0, 0.7, 0.4, 0.4]),
                  ("two-shm", "gateway and worker over shm", "Gateway and worker over shared memory, CPU of both. Homes lease attributes, so that the gateway holds objects up to 256 KiB (`gateway.tier.small_object_max`), and keeps pages of longer ones (`gateway.tier.kept_pages_max`).", [1.3, 0.85, 0.45, 0.45]),
                  ("two-tcp", "gateway and worker over tcp", "The same over TCP on loopback.", [1.3, 1.3, 1.0, 1.0])]
        tables = []
        for name, what, words, aims in setups:
            rows = [row for size, aim in zip(sizes, aims, strict=True) for row in self.beside_nginx(f"{name}-{size}", size, what, aim)]
            if rows:
                tables += [f"### {what[0].upper()}{what[1:]}", words,
                           table(["size", "nginx µs", "verbs3 µs", "CPU ratio (95 %)", "nginx/s", "verbs3/s", "rate ratio (95 %)", "nginx p99 µs", "verbs3 p99 µs"], rows)]
        if tables:
            self.add("## Hot, against nginx", "SigV4 and policy on, 8 connections; nginx: one process, sendfile from tmpfs, nothing signed. CPU is the server's, µs a request; every body is checked.", *tables)

    def small(self):
        rows = []
        plain = load(self.folder, "two-shm-4k.json")
        theirs = rate(plain["sides"][1], "requests_per_second") if plain else None
        for absent, what in [("0.0", "HEADs of objects of 4 KiB"), ("1.0", "HEADs of absent objects"),
                             ("0.5", "HEADs of present and absent objects, 16 connections")]:
            if not (record := self.record(f"head-{absent}")):
                continue
            ours = rate(record["sides"][0], "requests_per_second")
            rows.append([f"{what}, requests/s", f"{number(ours)}; ÷ nginx's: {ratio(record, 'requests_per_second')}", ratio(record, "server_cpu_per_request")])
            if absent == "0.5":
                self.aim(f"1,000 {what}, ms", "≤ 25", number(1e6 / ours, 1), ours >= 40_000)
            elif theirs:
                self.aim(f"{what} a second ÷ nginx's GETs of 4 KiB, in another run", "≥ 1.0", f"{ours / theirs:.2f}", ours >= theirs)
        if record := self.record("half"):
            found = record["ratios"]["latency_p99"]["mean"]
            asked = record["scenario"]["load"]
            rows.append([f"GETs of 4 KiB at half of what verbs3 can do ({number(asked.get('requests_per_second') or rate(record['sides'][0], 'requests_per_second'))}/s), p99 ÷ nginx's", ratio(record, "latency_p99"), "-"])
            self.aim("GET of 4 KiB at half load, p99 ÷ nginx", "≤ 1.5", ratio(record, "latency_p99"), found <= 1.5)
        for name, what, aim, count in [("effort", "task switches of gateway and worker", 0.05, lambda: float(self.lines_of("effort.switches")[0])),
                                       ("effort-traced", "system calls of the gateway", 3, lambda: float(self.lines_of("effort.calls")[-1].split()[3]))]:
            if record := self.record(name):
                found = count() / record["sides"][0]["all"]["requests"]
                self.aim(f"{what} for a GET of 4 KiB", f"≤ {aim}", f"{found:.2f}", found <= aim)
        few, many = self.record("crowd-8"), self.record("crowd-2000")
        if few and many:
            costs = [rate(record["sides"][0], "server_cpu_us_per_request") for record in (few, many)]
            theirs = [rate(record["sides"][1], "server_cpu_us_per_request") for record in (few, many) if len(record["sides"]) > 1]
            of_nginx = f"; nginx: {theirs[1] / theirs[0]:.2f}" if len(theirs) == 2 else ""
            rates = [rate(record["sides"][0], "requests_per_second") for record in (few, many)]
            rows.append(["GETs of 4 KiB by 2,000 connections ÷ by 8", f"{number(rates[1])}/s ÷ {number(rates[0])}/s", f"{costs[1] / costs[0]:.2f} ({number(costs[1], 1)} µs ÷ {number(costs[0], 1)} µs{of_nginx})"])
            self.aim("GET of 4 KiB, server CPU with 2,000 connections ÷ with 8", "≤ 1.3", f"{costs[1] / costs[0]:.2f}", costs[1] <= 1.3 * costs[0])
        if rows:
            self.add("## Small requests, and many clients", "Gateway and worker over shared memory, with leases.", table(["", "found", "CPU ratio"], rows))

    def many(self):
        held = [json.loads(line) for line in self.lines_of("many.held")]
        records = [(one["objects"], self.record(f"many-{one['objects']}")) for one in held if one["objects"]]
        records = [(count, record) for count, record in records if record]
        if len({count for count, _ in records}) < 2:
            return
        rows = []
        for (count, record), one in zip(records, held[1:], strict=False):
            ours = record["sides"][0]
            rows.append([number(count), number(rate(ours, "requests_per_second")), number(rate(ours, "server_cpu_us_per_request"), 1), ratio(record, "requests_per_second"),
                         number(one["heap"] / MIB), f"{one['loaned'] / max(one['asked'], 1) - 1:.1%}"])
        # What the process has anyway is in both.
        growth = (held[-1]["heap"] - held[1]["heap"]) / (held[-1]["objects"] - held[1]["objects"])
        few, all_ = (record["ratios"]["requests_per_second"]["mean"] for _, record in (records[0], records[-1]))
        self.aim(f"GETs of 4 KiB out of {number(records[-1][0])} objects ÷ out of {number(records[0][0])}, rate ÷ nginx's", "≥ 0.9", f"{all_ / few:.2f}", all_ >= 0.9 * few)
        # What `verbs3 plan` counts for it: 200 of the index, 512 of its attributes.
        self.aim("memory of a worker for an object of 4 KiB besides its page, bytes", "≤ 712", number(growth), growth <= 712)
        self.aim("cells of the arena that are wider than what was asked for", "≤ 15 %", rows[-1][5], held[-1]["loaned"] <= 1.15 * held[-1]["asked"])
        self.add("## Many small objects", "4 KiB each, at random, out of the worker: the gateway holds none. Gateway and worker over shared memory.",
                 f"Each takes {number(growth)} bytes of the worker's memory besides its page: attributes, index, and what the allocator keeps. The index is at most 200 (`a_small_object_costs_at_most_200_bytes_of_index`).",
                 table(["objects", "requests/s", "CPU, µs", "rate ÷ nginx's", "worker's memory besides the arena, MiB", "arena's waste"], rows))

    def requests(self):
        rows = []
        for size in ["1MiB", "18MiB", "64MiB"]:
            before, after = self.lines_of(f"requests-{size}.before"), self.lines_of(f"requests-{size}.after")
            record = self.record(f"requests-{size}")
            if not (record and len(before) == len(after) == 2):
                continue
            objects = record["scenario"]["objects"]["count"]
            behind, direct = (json.loads(late)["answers"] - json.loads(early)["answers"] for early, late in zip(before, after, strict=True))
            rows.append([size, f"{behind / objects:.2f}", f"{direct / objects:.2f}"])
            self.aim(f"requests at the store for a cold object of {size} ÷ direct", "≤ 1.2", f"{behind / direct:.2f}", behind <= 1.2 * direct)
        if rows:
            self.add("## Requests at the store", "Eight objects of each size, read once, one after the other, through a gateway and two workers, and directly.", table(["object", "requests each", "directly"], rows))

    def ranges(self):
        rows, moved = [], []
        for name, what in [("ranges-hot", "hot, against nginx"), ("ranges-cold", "cold, pages of 256 KiB, against the store directly"),
                           ("ranges-cold-parts", "cold, `worker.fill.part = \"4KiB\"`, against the store directly")]:
            record = self.record(name)
            if not record:
                continue
            ours, theirs = record["sides"]
            rows.append([what, number(rate(theirs, "requests_per_second")), number(rate(ours, "requests_per_second")), ratio(record, "requests_per_second"),
                         number(micros(theirs, "latency", "p50")), number(micros(ours, "latency", "p50")), ratio(record, "latency_p50"), ratio(record, "latency_p99"),
                         ratio(record, "server_cpu_per_request")])
            counts = self.folder / f"{name}.counts"
            if counts.exists():
                behind, direct = (json.loads(line)["from_store"] for line in counts.read_text().splitlines())
                asked = [side["all"]["bytes"] for side in record["sides"]]
                moved.append([what, number(asked[0] / MIB), number(behind / MIB), f"{behind / asked[0]:.2f}", f"{direct / asked[1]:.2f}"])
                if name == "ranges-cold-parts":
                    self.aim("64 KiB of cold objects at random offsets, in parts of pages, rate ÷ direct", "≥ 0.9", ratio(record, "requests_per_second"),
                             record["ratios"]["requests_per_second"]["mean"] >= 0.9)
                    self.aim("the same, bytes from the store ÷ asked", "≤ 1.5", f"{behind / asked[0]:.2f}", behind <= 1.5 * asked[0])
        if rows:
            self.add("## 64 KiB at random offsets", "16 connections, offsets on 4 KiB.",
                     table(["", "reference/s", "verbs3/s", "rate ratio", "reference p50 µs", "verbs3 p50 µs", "p50 ratio", "p99 ratio", "CPU ratio"], rows))
        if moved:
            self.add("What left the store:", table(["", "MiB asked for", "MiB from the store", "÷", "directly ÷"], moved))

    def cold(self):
        rows = []
        for name, what in [("cold", "16 MiB, 8 connections"), ("cold-first-byte", "1 MiB, one at a time"), ("cold-stream", "1 GiB, by one connection")]:
            record = self.record(name)
            if not record:
                continue
            ours, theirs = record["sides"]
            first = [micros(side, "first_byte", "p50") for side in (theirs, ours)]
            rows.append([what, number(rate(theirs, "mib_per_second"), 1), number(rate(ours, "mib_per_second"), 1), ratio(record, "mib_per_second"),
                         number(first[0]), number(first[1]), ratio(record, "first_byte_p50"), number(rate(ours, "server_cpu_us_per_mib"))])
            found = record["ratios"]["mib_per_second"]["mean"]
            if name == "cold":
                self.aim("cold GET of 16 MiB, throughput ÷ direct", "≥ 0.9", ratio(record, "mib_per_second"), found >= 0.9)
            elif name == "cold-stream":
                self.aim("cold GET of 1 GiB by one connection, throughput ÷ direct", "≥ 2", ratio(record, "mib_per_second"), found >= 2)
            else:
                bound = 1.15 * first[0] + 1000
                self.aim("cold GET of 1 MiB, first byte", "≤ 1.15 × direct + 1 ms", f"{first[1] / 1e3:.2f} ms; bound {bound / 1e3:.2f} ms", first[1] <= bound)
        if rows:
            self.add("## Cold", "Objects that nobody has read before, through gateway and worker (two processes), and directly; both through the same shape.",
                     table(["", "direct MiB/s", "verbs3 MiB/s", "ratio (95 %)", "direct first byte µs", "verbs3 first byte µs", "ratio (95 %)", "CPU of gateway and worker, µs a MiB"], rows))

    def write(self):
        rows = []
        for name, what in [("checkpoint", "PUT of 32 MiB"), ("checkpoint-multipart", "64 MiB in parts of 8 MiB")]:
            record = self.record(name)
            if not record:
                continue
            ours, theirs = record["sides"]
            rows.append([what, number(rate(theirs, "mib_per_second"), 1), number(rate(ours, "mib_per_second"), 1), ratio(record, "mib_per_second"), ratio(record, "latency_p50")])
            self.aim(f"{what}, throughput ÷ direct", "≥ 0.9", ratio(record, "mib_per_second"), record["ratios"]["mib_per_second"]["mean"] >= 0.9)
        if rows:
            self.add("## Writes", "4 connections, through the same shape.", table(["", "direct MiB/s", "verbs3 MiB/s", "ratio (95 %)", "latency ratio (95 %)"], rows))
        if record := self.record("checkpoint-read-back"):
            kinds = record["sides"][0]["all"]["kinds"]
            self.add(f"In a further run, {kinds['read back']['requests']} of {kinds['put']['requests']} objects were read back through the gateway right after their write; wrong answers: {record['sides'][0]['all']['wrong_answers']}.")

    def amplification(self):
        if found := load(self.folder, "amplification.json"):
            bytes_ = found["after"]["from_store"] - found["before"]["from_store"]
            answers = found["after"]["answers"] - found["before"]["answers"]
            part = bytes_ / found["object_bytes"]
            self.aim("three gateways start cold on one object, bytes from the store ÷ object", "≤ 1.01", f"{part:.4f}", part <= 1.01)
            self.add("## Amplification", f"Three gateways and two workers, one object of {found['object_bytes'] // MIB} MiB read through each gateway at once: {bytes_:,} bytes left the store in {answers} answers, "
                     f"heads included: {part:.4f} of the object.")

    def memory(self):
        rows = []
        for way in ["shm", "tcp"]:
            path = self.folder / f"memory-{way}.txt"
            if path.exists():
                text = path.read_text().strip().splitlines()[-1]
                rows.append([way, text])
                words = text.replace(",", "").split()
                peak, bound = int(words[words.index("before") + 1]), int(words[words.index("bound") + 1])
                self.aim(f"resident memory of gateway and worker over {way}", f"≤ {bound} MiB", f"{peak} MiB", peak <= bound)
        if rows:
            self.add("## Memory", "64 readers of 1 GiB objects and 16 writers; arenas of 64 and 256 MiB.", table(["between the two", ""], rows))

    def lines(self, name):
        """What a script has printed. Nothing where it was not run, or did not end."""
        return self.lines_of(f"{name}.txt")

    def lines_of(self, file):
        path = self.folder / file
        return path.read_text().rstrip().splitlines() if path.exists() else []

    def lent(self):
        if lines := self.lines("lent"):
            rows = [re.split(r"\s{2,}", line.strip()) for line in lines[1:]]
            found = {(size, way): [float(figure.replace(",", "")) for figure in figures] for size, way, *figures in rows}
            for size, way, most in [("4 KiB", "read", 70), ("128 KiB", "read", 80), ("1 MiB", "read_pages", 90), ("1 MiB", "read", 130)]:
                if figures := found.get((size, way)):
                    self.aim(f"lent memory, `{way}` of {size}, µs", f"≤ {most}", number(figures[0]), figures[0] <= most)
            for size, way, most in [("16 MiB", "read_pages", 0.02), ("16 MiB", "read", 0.35)]:
                if figures := found.get((size, way)):
                    self.aim(f"lent memory, `{way}` of {size}, time ÷ boto3", f"≤ {most}", f"{figures[-1]:.3f}", figures[-1] <= most)
            self.add("## By lent memory", "One client in Python, gateway and worker over shared memory, with leases (`python/bench/lent_reads.py`). Each way twenty times in a row, then the next. Medians of times; CPU is the client's, a mean.",
                     table(["size", "way", "µs", "client's CPU, µs", "÷ boto3"], rows))

    def preload(self):
        if lines := self.lines("preload"):
            for line in lines:
                if found := re.search(r"(\w+): .*preload / plain ([\d.]+) (.*)", line):
                    self.aim(f"preload ÷ plain parallel GETs, `{found[1]}`", "≥ 0.95", f"{found[2]} {found[3]}", float(found[2]) >= 0.95)
            self.add("## Preload", "`loadtest/preload.sh`: a job against as many GETs at once by `curl`, in turn, behind the shape.", "\n".join(f"- {line.strip()}" for line in lines))

    def populate(self):
        rows, taken = [], []
        for name, what in [("populate", "PUT of 32 MiB"), ("populate-multipart", "64 MiB in parts of 8 MiB")]:
            lines = self.lines(name)
            if not lines:
                continue
            record, _ = json.JSONDecoder().raw_decode("\n".join(lines))
            found = ratio(record, "mib_per_second")
            rows.append([what, found, ratio(record, "latency_p50")])
            self.aim(f"{what}, with populate on write ÷ without, throughput", "≥ 0.97", found, record["ratios"]["mib_per_second"]["mean"] >= 0.97)
            taken += [f"- {what}, {line}" for line in lines if re.match(r"(on|off): ", line)]
        if rows:
            self.add("## Populate on write", "`loadtest/populate.sh`: written and read back through a gateway that copies writes to its worker, ÷ one that does not. The store is on the same host, nothing shapes it.",
                     table(["", "throughput, with ÷ without", "latency of all requests, p50"], rows), "\n".join(taken))

    def fabric(self):
        if lines := self.lines("fabric"):
            for line in lines:
                if found := re.match(r"tcp +(\d+) bytes: .* ratio ([\d.]+) (.*)", line):
                    self.aim(f"tcp, pages of {int(found[1]) >> 10} KiB, ÷ plain streams", "≥ 0.95", f"{found[2]} {found[3]}", float(found[2]) >= 0.95)
            self.add("## The network between two hosts", "`loadtest/fabric.sh tcp`: two processes over loopback.", "\n".join(f"- {line}" for line in lines))

    def printed(self, name, heading, words):
        """What a script has printed, as it is."""
        if lines := self.lines(name):
            shown = [part for line in lines for part in textwrap.wrap(line, 100, subsequent_indent="    ") or [""]]
            self.add(f"## {heading}", words, "```text\n" + "\n".join(shown) + "\n```")

    def failover(self):
        self.printed("failover", "A worker fails", "`loadtest/failover.sh`: 100 GETs of 1 MiB are due each second; nothing happens, a worker is killed, a worker is stopped.")

    def tenants(self):
        self.printed("tenants", "Tenants", "`loadtest/tenants.sh --load 0.25`.")

    def whole(self):
        for part in (self.hot, self.small, self.many, self.ranges, self.cold, self.requests, self.write, self.amplification, self.memory,
                     self.lent, self.preload, self.populate, self.fabric, self.failover, self.tenants):
            part()
        machine = load(self.folder, "machine.json") or sys.exit(f"{self.folder} has no machine.json: measure again")
        head = ["# Performance\n", "Written by `loadtest/report.sh`; the words under *Findings* are `loadtest/findings.md`. Ratios are verbs3 ÷ reference, paired by round and interleaved, geometric means with 95 % bootstrap "
                "intervals; figures are medians of rounds. Ratios of one run mean something; figures of other machines or days don't compare.\n",
                f"{machine.get('cpus')} CPUs ({machine.get('model')}), shared by client, server, store and proxy; Linux {machine.get('kernel')}; {machine.get('date')}, revision {machine.get('revision')}, profile {machine.get('profile')}. "
                f"The store is `verbs3 dev` over a folder behind `verbs3-loadtest proxy`: {machine.get('bandwidth')}/s in all, {machine.get('connection_bandwidth')}/s a connection, "
                f"{machine.get('first_byte')} to the first byte, for both sides alike.\n",
                "## Aims\n", table(["what", "aim", "found", ""], self.aims)]
        findings = pathlib.Path(__file__).with_name("findings.md")
        tail = ["## Findings\n", findings.read_text()] if findings.exists() else []
        if self.limits:
            tail += ["## Limits besides the server\n", "\n".join(f"- {what}: {', '.join(dict.fromkeys(names))}" for what, names in sorted(self.limits.items())) + "\n"]
        return wrapped("\n".join(head + self.text + tail))

    def short(self):
        """The table of README.md and docs/performance.md: by size, nginx and each set-up. Nothing where a part is missing."""
        names, rows = [("hot", "one process"), ("two-shm", "two, shared memory"), ("two-tcp", "two, tcp")], []
        for size, title in [("4k", "4 KiB"), ("128k", "128 KiB"), ("1m", "1 MiB"), ("16m", "16 MiB")]:
            records = [load(self.folder, f"{name}-{size}.json") for name, _ in names]
            if not all(records):
                return None
            cost = [[rate(side, "server_cpu_us_per_request") for side in record["sides"]] for record in records]
            rates = [record["ratios"]["requests_per_second"]["mean"] for record in records]
            nginx = [theirs for _, theirs in cost]
            rows.append([title, f"{number(min(nginx))}–{number(max(nginx))}", *(f"{number(ours)} ({more:.2f})" for (ours, _), more in zip(cost, rates, strict=True))])
        return table(["size", "nginx", *(f"verbs3, {what}" for _, what in names)], rows)


def put_short(path, short):
    """Puts the table between the two marks of a document."""
    text = path.read_text()
    start, end = text.index("\n", text.index("<!-- hot:")) + 1, text.index("<!-- /hot -->")
    path.write_text(f"{text[:start]}\n{short}\n{text[end:]}")


if __name__ == "__main__":
    report, root = Report(pathlib.Path(sys.argv[1])), pathlib.Path(__file__).parent.parent
    pathlib.Path(sys.argv[2]).write_text(report.whole())
    if pathlib.Path(sys.argv[2]).resolve() == (root / "loadtest/PERFORMANCE.md").resolve() and (short := report.short()):
        for document in ("README.md", "docs/performance.md"):
            put_short(root / document, short)
