"""Writes and reads checkpoints as the class of that name in MLPerf Storage's tool does: the engine
calls it, and does not bring it.

A save makes random bytes in chunks and gives them to a multipart upload. A load reads blocks of
equal length by ranged GETs at once and drops what comes. Measures nothing: the engine takes the
time around it.
"""

from concurrent.futures import ThreadPoolExecutor

import dgen_py
import s3dlio

# The tool reads four of the chunks that it writes at once.
READ_CHUNKS = 4


class StreamingCheckpointing:
    """The part of the tool's interface that the engine uses; it takes the engine's arguments."""

    def __init__(self, chunk_size, part_size, max_in_flight, num_parallel_readers, **_unused):
        self.chunk_bytes = chunk_size
        self.part_bytes = part_size
        self.parts_in_flight_max = max_in_flight
        self.reader_count = num_parallel_readers

    def save(self, name, total_bytes):
        """Uploads `total_bytes` random bytes as s3://`name`."""
        generator = dgen_py.Generator(size=total_bytes, chunk_size=self.chunk_bytes, max_threads=1)
        buffer = bytearray(self.chunk_bytes)
        writer = s3dlio.MultipartUploadWriter.from_uri(
            f"s3://{name}",
            part_size=self.part_bytes,
            max_in_flight=self.parts_in_flight_max,
            abort_on_drop=True,
        )
        written = 0
        while written < total_bytes:
            length = min(self.chunk_bytes, total_bytes - written)
            generator.fill_chunk(buffer)
            # The buffer is filled again at once.
            writer.write(memoryview(buffer)[:length], copy=True)
            written += length
        writer.close()

    def load(self, name, total_bytes):
        """Reads all of s3://`name`, which has `total_bytes`; fails if fewer come."""
        block_bytes = -(-total_bytes // self.reader_count)
        blocks = [
            (begin, min(begin + block_bytes, total_bytes))
            for begin in range(0, total_bytes, block_bytes)
        ]
        with ThreadPoolExecutor(len(blocks)) as readers:
            read = sum(readers.map(lambda block: self._read_block(name, *block), blocks))
        if read != total_bytes:
            raise OSError(f"s3://{name}: {read} bytes came, not {total_bytes}")

    def _read_block(self, name, begin, end):
        read = 0
        while begin + read < end:
            length = min(READ_CHUNKS * self.chunk_bytes, end - begin - read)
            came = len(s3dlio.get_range(f"s3://{name}", begin + read, length))
            if came == 0:
                raise OSError(f"s3://{name} ends at byte {begin + read}")
            read += came
        return read
