#include "ir/attributes.h"

#include <doctest/doctest.h>

namespace graphpipe::ir {
namespace {

TEST_CASE("the order in which attributes are set does not matter") {
  Attributes first{{"pads", std::vector<int64_t>{1, 1}}, {"axis", int64_t{2}}};
  Attributes second;
  second.set("axis", int64_t{0});
  second.set("axis", int64_t{2});
  second.set("pads", std::vector<int64_t>{1, 1});
  CHECK(first == second);
  CHECK(first.begin()->first == "axis");
}

TEST_CASE("a getter returns the value, or the fallback where the name is absent") {
  const Attributes attributes{{"a", int64_t{3}},
                              {"b", 0.5},
                              {"c", std::string("same")},
                              {"d", std::vector<double>{1, 2}},
                              {"e", Shape{Dim::batch(), Dim::fixed(4)}}};
  CHECK(attributes.get_int("a", 7) == 3);
  CHECK(attributes.get_int("z", 7) == 7);
  CHECK(attributes.get_double("b", 1) == 0.5);
  CHECK(attributes.get_string("c", "") == "same");
  CHECK(attributes.get_string("z", "none") == "none");
  CHECK(attributes.get_doubles("d") == std::vector<double>{1, 2});
  CHECK(attributes.get_ints("z", {5}) == std::vector<int64_t>{5});
  CHECK(attributes.get_shape("e") == Shape{Dim::batch(), Dim::fixed(4)});
  CHECK_FALSE(attributes.has("z"));
}

}  // namespace
}  // namespace graphpipe::ir
