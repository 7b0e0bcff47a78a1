#include "files/strict_json.h"

#include <doctest/doctest.h>

namespace graphpipe::files {
namespace {

std::string refusal(std::string_view text, const JsonLimits& limits = {}) {
  const Status status = scan_json(text, limits);
  return status.ok() ? std::string("fine") : status.problems()[0].message;
}

TEST_CASE("plain JSON passes") {
  CHECK(refusal("{}") == "fine");
  CHECK(refusal(R"( {"a": [1, -2.5e3, true, null, "x\u00e9\ud83d\ude00"], "b": {"a": {}}} )") == "fine");
  CHECK(refusal("3") == "fine");
}

TEST_CASE("what lenient readers let pass is refused, with the path") {
  CHECK(refusal(R"({"a": 1, "a": 2})") == "a: this field stands here twice");
  CHECK(refusal(R"({"x": [{"a": 1}, {"b": 1, "c": 2, "b": 2}]})") == "x[1].b: this field stands here twice");
  CHECK(refusal(R"({"a": {"b": 1e400}})") == "a.b: the number does not fit into 64 bits");
  CHECK(refusal(R"([0, -1e400])") == "[1]: the number does not fit into 64 bits");
  CHECK(refusal(R"({"a": NaN})").find("a: not JSON from byte") == 0);
  CHECK(refusal(R"({"a": Infinity})").find("a: not JSON") == 0);
  CHECK(refusal("{\"a\": \"\xff\"}").find("a: not JSON") == 0);
  CHECK(refusal("{\"a\": \"\xed\xa0\x80\"}").find("a: not JSON") == 0);
  CHECK(refusal(R"({"a": "\ud800"})").find("a: not JSON") == 0);
  CHECK(refusal("{\"a\xc0\": 1}").find("the file: not JSON") == 0);
  CHECK(refusal(R"({"a": 1} x)").find("not JSON") != std::string::npos);
  CHECK(refusal(R"({"a": 1,})").find("not JSON") != std::string::npos);
  CHECK(refusal(R"({"a": 01})").find("not JSON") != std::string::npos);
  CHECK(refusal("{'a': 1}").find("not JSON") != std::string::npos);
  CHECK(refusal("// x\n{}").find("not JSON") != std::string::npos);
  CHECK(refusal("").find("not JSON") != std::string::npos);
}

TEST_CASE("depth and size have limits, whatever the text") {
  CHECK(refusal(std::string(64, '[') + std::string(64, ']')) == "fine");
  CHECK(refusal(std::string(65, '[') + std::string(65, ']')).find("nested deeper than 64 levels") != std::string::npos);
  CHECK(refusal(std::string(1000000, '[')).find("nested deeper") != std::string::npos);
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  CHECK(refusal(objects).find("nested deeper") != std::string::npos);
  CHECK(refusal("[1, 2, 3]", {.max_bytes = 8}).find("larger than 8 bytes") != std::string::npos);
}

TEST_CASE("problems are counted to a limit and their paths are safe to print") {
  std::string text = "{\"a\\u001b\": 1";
  for (int i = 0; i < 1000; ++i) text += ", \"a\\u001b\": 1";
  const Status status = scan_json(text + "}");
  REQUIRE_FALSE(status.ok());
  CHECK(status.problems().size() == 20);
  CHECK(status.problems()[0].message == "a\\x1b: this field stands here twice");
}

TEST_CASE("the check sees every value with its path") {
  std::string seen;
  REQUIRE(scan_json(R"({"a": [1, {"b": "x"}], "c": true})", {}, [&](const JsonEvent& event) {
            seen += path_text(event.path) + ";";
            return std::string();
          }).ok());
  CHECK(seen == ";a;a[0];a[1];a[1].b;c;");
  const Status status = scan_json("[1, 2]", {}, [](const JsonEvent& event) {
    return event.number == 2 ? std::string("too large") : std::string();
  });
  REQUIRE_FALSE(status.ok());
  CHECK(status.problems()[0].message == "[1]: too large");
}

}  // namespace
}  // namespace graphpipe::files
