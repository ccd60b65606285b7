"""Rule 45.14: definitions exported and imported over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conformance.http_api import NOT_FOUND, PASSWORD, Belongings, HttpApi, bad_request, path

QUEUE = {"name": "q", "durable": True, "auto_delete": False, "arguments": {"x-max-length": 5}}
EXCHANGE = {
    "name": "x",
    "type": "topic",
    "durable": True,
    "auto_delete": False,
    "internal": False,
    "arguments": {"alternate-exchange": "amq.fanout"},
}
BINDING = {"source": "x", "destination": "q", "destination_type": "queue", "routing_key": "k.#", "arguments": {"a": 1}}
POLICY = {
    "name": "p",
    "pattern": "^q",
    "apply-to": "queues",
    "definition": {"max-length": 3, "overflow": "reject-publish"},
    "priority": 2,
}
CAP = {"pattern": "^q", "apply-to": "queues", "definition": {"max-length": 9}, "priority": 1}
SECTIONS = ["queues", "exchanges", "bindings"]


def whole(vhost: str) -> dict[str, Any]:
    return {
        "queues": [QUEUE],
        "exchanges": [EXCHANGE],
        "bindings": [BINDING],
        "policies": [{**POLICY, "vhost": vhost}],
        "parameters": [
            {"component": "operator_policy", "name": "cap", "vhost": vhost, "value": CAP},
            {"component": "vhost-limits", "name": "limits", "vhost": vhost, "value": {"max-queues": 9}},
        ],
    }


def without_types(document: dict[str, Any]) -> dict[str, Any]:
    """Leave out the types of queues, which newer releases export."""
    queues = [{key: value for key, value in entry.items() if key != "type"} for entry in document["queues"]]
    return {**document, "queues": queues}


def sort(document: dict[str, Any]) -> dict[str, Any]:
    return {key: sorted(value, key=str) if isinstance(value, list) else value for key, value in document.items()}


class TestOneVhost:
    def test_45_14_what_is_imported_can_be_exported(self, api: HttpApi, own_vhost: str) -> None:
        below = path("definitions", own_vhost)
        api.check("POST", below, whole(own_vhost), 204)
        exported = without_types(api.get(below))
        assert isinstance(exported.pop("rabbit_version"), str)
        ordered = [{key: entry[key] for key in sorted(entry)} for entry in exported["parameters"]]
        expected = [{key: entry[key] for key in sorted(entry)} for entry in whole(own_vhost)["parameters"]]
        assert sorted(ordered, key=lambda entry: str(entry["name"])) == expected
        assert {**exported, "parameters": []} == {**whole(own_vhost), "parameters": []}

    def test_45_14_everything_lands_where_the_path_says(
        self, api: HttpApi, own_vhost: str, belongings: Belongings
    ) -> None:
        document = {section: [{**entry, "vhost": "elsewhere"} for entry in whole("")[section]] for section in SECTIONS}
        user = belongings.name("users")
        document["users"] = [{"name": user, "password": "x", "tags": ""}]
        api.check("POST", path("definitions", own_vhost), document, 204)
        assert [queue["name"] for queue in api.get(path("definitions", own_vhost))["queues"]] == ["q"]
        api.check("GET", path("users", user), None, 404, NOT_FOUND)

    def test_45_14_what_exists_stays_as_it_is(self, api: HttpApi, own_vhost: str) -> None:
        below = path("definitions", own_vhost)
        api.check("POST", below, whole(own_vhost), 204)
        changed = {
            "queues": [{**QUEUE, "durable": False, "arguments": {}}],
            "exchanges": [{**EXCHANGE, "type": "direct", "arguments": {}}],
        }
        api.check("POST", below, changed, 204)
        exported = without_types(api.get(below))
        assert (exported["queues"], exported["exchanges"]) == ([QUEUE], [EXCHANGE])

    def test_45_14_what_is_left_out(self, api: HttpApi, own_vhost: str) -> None:
        api.check("PUT", path("queues", own_vhost, "transient"), {}, 201)
        exported = api.get(path("definitions", own_vhost))
        assert [queue["name"] for queue in exported["queues"]] == ["transient"]
        assert (exported["exchanges"], exported["bindings"]) == ([], []), "amq.* and implicit bindings"

    def test_45_14_a_virtual_host_that_does_not_exist(self, api: HttpApi) -> None:
        below = path("definitions", "conformance-no-vhost")
        api.check("GET", below, None, 400, bad_request("vhost_not_found"))
        expected = {"error": "not_found", "reason": "vhost_not_found"}
        api.check("POST", below, {"queues": []}, 404, expected)


class TestWhole:
    def test_45_14_users_and_permissions(self, api: HttpApi, own_vhost: str, belongings: Belongings) -> None:
        user = belongings.name("users")
        patterns = {"configure": "", "write": "^a", "read": ".*"}
        topic = {"exchange": "amq.topic", "write": "^w", "read": ".*"}
        document = {
            "users": [{"name": user, "password": PASSWORD, "tags": "management", "limits": {"max-channels": 2}}],
            "permissions": [{"user": user, "vhost": own_vhost, **patterns}],
            "topic_permissions": [{"user": user, "vhost": own_vhost, **topic}],
        }
        api.check("POST", "definitions", document, 204)
        assert api.ask("GET", "whoami", user=user).document == {"name": user, "tags": ["management"]}
        exported = api.get("definitions")
        shown = next(entry for entry in exported["users"] if entry["name"] == user)
        assert (shown["tags"], shown["limits"]) == (["management"], {"max-channels": 2})
        assert {"user": user, "vhost": own_vhost, **patterns} in exported["permissions"]
        assert {"user": user, "vhost": own_vhost, **topic} in exported["topic_permissions"]

    def test_45_14_what_was_exported_can_be_imported(
        self, api: HttpApi, own_vhost: str, belongings: Belongings
    ) -> None:
        user = belongings.user("management", own_vhost)
        api.check("POST", path("definitions", own_vhost), whole(own_vhost), 204)
        exported = api.get("definitions")
        mine = {
            section: [entry for entry in exported[section] if own_vhost in (entry.get("vhost"), entry.get("name"))]
            for section in ("vhosts", "permissions", "parameters", "policies", *SECTIONS)
        }
        mine["users"] = [entry for entry in exported["users"] if entry["name"] == user]
        api.check("DELETE", path("vhosts", own_vhost), None, 204)
        api.check("DELETE", path("users", user), None, 204)
        api.check("POST", "definitions", mine, 204)
        again = api.get("definitions")
        for section, entries in mine.items():
            assert all(entry in again[section] for entry in entries), section
        assert api.ask("GET", "whoami", user=user).status == 200

    def test_45_14_its_sections(self, api: HttpApi) -> None:
        exported = api.get("definitions")
        assert set(exported) == {
            *("rabbit_version", "rabbitmq_version", "product_name", "product_version"),
            *("users", "vhosts", "permissions", "topic_permissions", "parameters", "global_parameters"),
            *("policies", "queues", "exchanges", "bindings"),
        }

    @pytest.mark.parametrize("body", [{}, b"", {"foo": 1}, {"rabbit_version": "3.10.8"}])
    def test_45_14_nothing_to_do(self, api: HttpApi, body: Any) -> None:
        api.check("POST", "definitions", body, 204)

    @pytest.mark.parametrize(
        ("body", "reason"),
        [
            (b"nojson", "failed_to_parse_json"),
            ([1], "failed_to_parse_json"),
            ("x", "failed_to_parse_json"),
            ({"queues": [{**QUEUE, "vhost": "conformance-no"}]}, ["no_such_vhost", "conformance-no"]),
            ({"policies": [{**POLICY, "vhost": "conformance-no"}]}, ["no_such_vhost", "conformance-no"]),
            ({"users": [{"name": "conformance-no"}]}, "tags_not_present"),
            (
                {"permissions": [{"user": "conformance-no", "vhost": "/", "configure": "", "write": "", "read": ""}]},
                ["no_such_user", "conformance-no"],
            ),
        ],
    )
    def test_45_14_what_is_refused(self, api: HttpApi, body: Any, reason: object) -> None:
        api.check("POST", "definitions", body, 400, bad_request(reason))

    def test_45_14_where_a_refused_entry_stands(self, api: HttpApi, own_vhost: str) -> None:
        policy = {"vhost": own_vhost, "name": "bad", "pattern": "x", "definition": {"nosuch": 1}}
        text = f'[{{&lt;&lt;"nosuch"&gt;&gt;,1}}] are not recognised policy settings\n ({own_vhost}/bad)'
        api.check("POST", "definitions", {"policies": [policy]}, 400, bad_request(f"Validation failed\n\n{text}"))

    @pytest.mark.departs("none")
    def test_45_14_what_is_not_here_is_left_out(self, api: HttpApi, own_vhost: str) -> None:
        """RabbitMQ without the plugin, or before the release, answers 400 and does not import queues."""
        parameter = {"vhost": own_vhost, "component": "federation-upstream", "name": "s", "value": {}}
        newer = {"max-length": 3, "target-group-size": 3}
        policy = {"vhost": own_vhost, "name": "p", "pattern": "x", "definition": newer}
        document = {"parameters": [parameter], "policies": [policy], "queues": [{**QUEUE, "vhost": own_vhost}]}
        reply = api.ask("POST", "definitions", document)
        assert reply.status == 204
        texts = ["parameters: 's' of component 'federation-upstream'", "policies: 'target-group-size' of 'p'"]
        named = "; ".join(f"{text} in vhost '{own_vhost}'" for text in texts)
        assert reply.headers["leveret-notice"] == f"left out: {named}"
        exported = api.get(path("definitions", own_vhost))
        assert [policy["definition"] for policy in exported["policies"]] == [{"max-length": 3}]
        assert [queue["name"] for queue in exported["queues"]] == ["q"]

    def test_45_14_a_default_queue_type_is_for_declarations(self, api: HttpApi, belongings: Belongings) -> None:
        vhost = belongings.name("vhosts")
        vhosts = [{"name": vhost, "metadata": {"description": "", "tags": [], "default_queue_type": "quorum"}}]
        priorities = {**QUEUE, "name": "priorities", "vhost": vhost, "arguments": {"x-max-priority": 3}}
        api.check("POST", "definitions", {"vhosts": vhosts, "queues": [priorities, {**QUEUE, "vhost": vhost}]}, 204)
        permissions = {"configure": ".*", "write": ".*", "read": ".*"}
        api.check("PUT", path("permissions", vhost, "guest"), permissions, 204)
        api.check("PUT", path("queues", vhost, "declared"), {"durable": True}, 201)
        shown = {queue["name"]: queue["type"] for queue in api.get(f"{path('queues', vhost)}?disable_stats=true")}
        assert shown == {"priorities": "classic", "q": "classic", "declared": "quorum"}
        exported = api.get("definitions")
        mine = {
            "vhosts": [entry for entry in exported["vhosts"] if entry["name"] == vhost],
            "queues": [entry for entry in exported["queues"] if entry["vhost"] == vhost],
        }
        api.check("DELETE", path("vhosts", vhost), None, 204)
        api.check("POST", "definitions", mine, 204)
        api.check("PUT", path("permissions", vhost, "guest"), permissions, 204)
        again = {queue["name"]: queue["type"] for queue in api.get(f"{path('queues', vhost)}?disable_stats=true")}
        assert again == shown

    @pytest.mark.parametrize("below", ["definitions", "definitions/{vhost}"])
    def test_45_14_downloading(self, api: HttpApi, own_vhost: str, below: str) -> None:
        reply = api.ask("GET", f"{below.replace('{vhost}', own_vhost)}?download=some.json")
        assert reply.headers["content-disposition"] == "attachment; filename=some.json"
        assert reply.headers["content-type"] == "application/json"


class TestUpload:
    """As browsers and rabbitmqadmin send a file."""

    form = {"Content-Type": "multipart/form-data; boundary=B"}  # noqa: RUF012

    def body(self, document: str, *fields: tuple[str, str]) -> bytes:
        parts = [
            'Content-Disposition: form-data; name="file"; filename="x.json"\r\n'
            f"Content-Type: application/json\r\n\r\n{document}",
            *(f'Content-Disposition: form-data; name="{name}"\r\n\r\n{value}' for name, value in fields),
        ]
        return ("".join(f"--B\r\n{part}\r\n" for part in parts) + "--B--\r\n").encode()

    @pytest.mark.parametrize("below", ["definitions", "definitions/{vhost}"])
    def test_45_14_a_file(self, api: HttpApi, own_vhost: str, below: str) -> None:
        document = json.dumps({"queues": [{**QUEUE, "vhost": own_vhost}]})
        api.check("POST", below.replace("{vhost}", own_vhost), self.body(document), 204, headers=self.form)
        assert without_types(api.get(path("definitions", own_vhost)))["queues"] == [QUEUE]

    def test_45_14_going_on_afterwards(self, api: HttpApi) -> None:
        reply = api.ask("POST", "definitions", self.body("{}", ("redirect", "../#/done")), headers=self.form)
        assert (reply.status, reply.headers["location"]) == (303, "../#/done")

    @pytest.mark.departs("none")
    @pytest.mark.parametrize(
        "redirect",
        ["//evil.example", "https:evil.example", "https://evil.example/", "/\\\\evil.example", "javascript:x"],
    )
    def test_45_14_never_to_another_host(self, api: HttpApi, redirect: str) -> None:
        reply = api.ask("POST", "definitions", self.body("{}", ("redirect", redirect)), headers=self.form)
        assert (reply.status, reply.headers.get("location")) == (204, None)

    def test_45_14_a_file_that_is_no_json(self, api: HttpApi) -> None:
        body = self.body("{", ("redirect", "../#/done"))
        api.check("POST", "definitions", body, 400, bad_request("failed_to_parse_json"), headers=self.form)

    def test_45_14_no_file(self, api: HttpApi) -> None:
        body = self.body("{}").replace(b'name="file"', b'name="other"')
        api.check("POST", "definitions", body, 400, bad_request("failed_to_parse_json"), headers=self.form)

    def test_45_14_logging_in_by_the_query(self, api: HttpApi, belongings: Belongings) -> None:
        assert api.ask("GET", "definitions?auth=Z3Vlc3Q6bm90aGlz", user="").status == 401
        assert api.ask("GET", "definitions", user="").status == 401


class TestWholeAndHalf:
    """What is left of documents that do not fit together, and who may use it."""

    def test_45_14_bindings_of_what_there_is_not_are_left_out(self, api: HttpApi, own_vhost: str) -> None:
        loose = [
            {**BINDING, "source": "nope", "vhost": own_vhost},
            {**BINDING, "destination": "nope", "vhost": own_vhost},
            {**BINDING, "vhost": "conformance-no-vhost"},
        ]
        document = {
            "queues": [{**QUEUE, "vhost": own_vhost}],
            "exchanges": [{**EXCHANGE, "vhost": own_vhost}],
            "bindings": [*loose, {**BINDING, "vhost": own_vhost}],
        }
        api.check("POST", "definitions", document, 204)
        assert api.get(path("definitions", own_vhost))["bindings"] == [BINDING]
        api.check("POST", path("definitions", own_vhost), {"bindings": loose[:2]}, 204)

    def test_45_14_who_brings_virtual_hosts_may_use_them(self, api: HttpApi, belongings: Belongings) -> None:
        user, vhost, other = belongings.user("administrator"), belongings.name("vhosts"), belongings.name("vhosts")
        given = {"user": user, "vhost": other, "configure": "", "write": "^w", "read": ".*"}
        document = {"vhosts": [{"name": vhost}, {"name": other}], "permissions": [given]}
        api.check("POST", "definitions", document, 204, user=user)
        everything = {"user": user, "vhost": vhost, "configure": ".*", "write": ".*", "read": ".*"}
        assert api.get(path("permissions", vhost, user)) == everything
        assert api.get(path("permissions", other, user)) == given
        api.check("DELETE", path("permissions", vhost, user), None, 204)
        api.check("POST", "definitions", document, 204, user=user)
        api.check("GET", path("permissions", vhost, user), None, 404, NOT_FOUND)
