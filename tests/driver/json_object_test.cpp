#include "driver/report/json_object.h"

#include <doctest/doctest.h>

#include <limits>

using graphpipe::driver::json_number;
using graphpipe::driver::JsonObject;

TEST_CASE("fields keep their order and text is encoded") {
  JsonObject object;
  object.add("b", 1).add("a", "x\"<\n").add("list", std::vector<double>{0.5, 2}).add("flag", true);
  CHECK(object.str() == R"({"b": 1, "a": "x\"\u003c\u000a", "list": [0.5, 2], "flag": true})");
}

TEST_CASE("objects nest") {
  JsonObject inner;
  inner.add("n", 2);
  JsonObject outer;
  outer.add("items", std::vector<JsonObject>{inner, inner}).add("one", inner).add("none", std::vector<std::string>{});
  CHECK(outer.str() == R"({"items": [{"n": 2}, {"n": 2}], "one": {"n": 2}, "none": []})");
}

TEST_CASE("numbers read back as themselves; what is no number is null") {
  CHECK(json_number(0.1) == "0.1");
  CHECK(std::stod(json_number(1.0 / 3)) == 1.0 / 3);
  CHECK(json_number(std::numeric_limits<double>::infinity()) == "null");
  CHECK(json_number(std::numeric_limits<double>::quiet_NaN()) == "null");
}
