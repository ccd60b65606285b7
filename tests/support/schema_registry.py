"""A schema registry over real HTTP, with faults."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FileDescriptorSet


class RegistryServer:
    """Answers as a schema registry does, on a free port of the loopback.

    Attributes:
        asked: The paths that were asked for, in order.
        status: The status of all answers; None for the right ones.
        body: The body of all answers; None for the right ones.
        trickles: Whether answers come byte by byte, and never end.
        login: The header Authorization that is required; "" for none.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.status: int | None = None
        self.body: bytes | None = None
        self.trickles = False
        self.login = ""
        self._answers: dict[str, dict[str, Any]] = {}
        self._numbers = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def register(self, subject: str, schema: Any, **more: Any) -> int:
        """Add a schema as the latest of a subject; return its number."""
        self._numbers += 1
        versions = sum(path.startswith(f"/subjects/{subject}/versions/") for path in self._answers)
        answer = {"subject": subject, "id": self._numbers, "schema": json.dumps(schema), **more}
        # What format=serialized gives of Protobuf.
        compiled = answer.pop("compiled", None)
        if compiled is not None:
            serialized = {**answer, "schema": b64encode(compiled).decode()}
            self._answers[f"/schemas/ids/{self._numbers}?format=serialized"] = serialized
        self._answers[f"/schemas/ids/{self._numbers}"] = answer
        self._answers[f"/subjects/{subject}/versions/{max(1, versions)}"] = answer
        self._answers[f"/subjects/{subject}/versions/latest"] = answer
        return self._numbers

    def close(self) -> None:
        """Stop to listen: connections are refused."""
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> RegistryServer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                answer = registry._answers.get(self.path)
                status = 200 if answer is not None else 404
                if registry.login and self.headers.get("Authorization") != registry.login:
                    status = 401
                octets = json.dumps(answer or {"error_code": 40403}).encode()
                self.send_response(registry.status or status)
                self.end_headers()
                try:
                    while registry.trickles:
                        self.wfile.write(b" ")
                        self.wfile.flush()
                        time.sleep(0.1)
                    self.wfile.write(octets if registry.body is None else registry.body)
                except OSError:
                    # Who has asked does not wait any longer.
                    pass

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        return Handler


ORDER_SCHEMA: Final = {
    "properties": {
        "id": {"type": "integer"},
        "line": {"$ref": "line.json"},
        "other": {"$ref": "https://shop/line.json#/properties/n"},
    }
}
ORDER: Final = {"id": 1, "line": {"n": 4}, "other": 7}


def register_json(registry: RegistryServer) -> tuple[dict[str, str], list[bytes]]:
    """Register a JSON schema that refers to others; return a rule for it, and a body of ORDER and one that is none."""
    line = {"$id": "https://shop/line.json", "properties": {"n": {"type": "integer"}}}
    registry.register("line", line, schemaType="JSON")
    references = [
        {"name": "line.json", "subject": "line", "version": 1},
        {"name": "https://shop/line.json", "subject": "line", "version": 1},
    ]
    number = registry.register("order-value", ORDER_SCHEMA, schemaType="JSON", references=references)
    rule = {"queue": "json.orders", "format": "json", "registry": registry.url, "subject": "order-value"}
    return rule, [framed(number, json.dumps(ORDER).encode()), json.dumps(ORDER).encode()]


def order_files() -> FileDescriptorSet:
    """`order.proto` with the messages Refund and Order (of ORDER), and `line.proto`, which it imports."""
    files = FileDescriptorSet()
    line = files.file.add(name="line.proto", package="shop", syntax="proto3")
    line.message_type.add(name="Line").field.add(name="n", number=1, type=5, label=1)
    order = files.file.add(name="order.proto", package="shop", syntax="proto3")
    order.dependency.extend(["line.proto", "google/protobuf/wrappers.proto", "confluent/meta.proto"])
    order.message_type.add(name="Refund").field.add(name="id", number=1, type=5, label=1)
    message = order.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=5, label=1)
    message.field.add(name="line", number=2, type=11, type_name=".shop.Line", label=1)
    message.field.add(name="other", number=3, type=11, type_name=".google.protobuf.Int32Value", label=1)
    return files


def register_protobuf(registry: RegistryServer) -> tuple[dict[str, str], list[bytes]]:
    """Register a Protobuf schema that imports others; return a rule, a body of ORDER, and one of another message."""
    line, order = order_files().file
    # Registries name files as they like.
    line.name = order.name = "default"
    registry.register("line.proto", "…", schemaType="PROTOBUF", compiled=line.SerializeToString())
    references = [{"name": "line.proto", "subject": "line.proto", "version": 1}]
    compiled = order.SerializeToString()
    number = registry.register("orders", "…", schemaType="PROTOBUF", compiled=compiled, references=references)
    rule = {"queue": "protobuf.orders", "format": "protobuf", "registry": registry.url, "subject": "orders"}
    body = b"\x08\x01\x12\x02\x08\x04\x1a\x02\x08\x07"
    return {**rule, "message": "shop.Order"}, [framed(number, b"\x02\x02" + body), framed(number, b"\x00" + body[:2])]


def framed(number: int, octets: bytes) -> bytes:
    """A body as a serializer of a registry writes it."""
    return b"\0" + number.to_bytes(4, "big") + octets
