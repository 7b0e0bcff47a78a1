#include "frontend/handover.h"

#include <doctest/doctest.h>

#include "tests/support/dice.h"

using namespace graphpipe;
using namespace graphpipe::frontend;

namespace {

Diagnostic example(Severity severity) {
  return {.code = Code::kUnsupportedOp,
          .severity = severity,
          .origin = ModelText("\x01 any bytes \xff"),
          .message = "what was found",
          .hint = "what to do"};
}

Handover refused() {
  return {.model = {}, .notes = {example(Severity::kNote)}, .problems = {example(Severity::kError)}};
}

}  // namespace

TEST_CASE("a handover reads back as it was written") {
  const std::optional<Handover> problems = decode_handover(encode_handover(refused()));
  REQUIRE(problems.has_value());
  REQUIRE(problems->problems.size() == 1);
  CHECK(to_line(problems->problems[0]) == to_line(refused().problems[0]));
  CHECK(problems->problems[0].origin == refused().problems[0].origin);
  CHECK(problems->notes.size() == 1);
  const std::optional<Handover> model = decode_handover(encode_handover({.model = std::string("a\0b", 3)}));
  REQUIRE(model.has_value());
  CHECK(model->model == std::string("a\0b", 3));
}

TEST_CASE("a process that was led astray cannot print to the terminal or hand back nothing") {
  CHECK_FALSE(decode_handover("").has_value());
  Handover both = refused();
  both.model = "model";
  CHECK_FALSE(decode_handover(encode_handover(both)).has_value());
  for (const char* words : {"\x1b[31mred", "line\nline", "\x7f"}) {
    Handover escape = refused();
    escape.problems[0].message = words;
    CHECK_FALSE(decode_handover(encode_handover(escape)).has_value());
    escape = refused();
    escape.problems[0].hint = words;
    CHECK_FALSE(decode_handover(encode_handover(escape)).has_value());
  }
  Handover unknown = refused();
  unknown.problems[0].code = static_cast<Code>(static_cast<int>(Code::kInternal) + 1);
  CHECK_FALSE(decode_handover(encode_handover(unknown)).has_value());
}

TEST_CASE("damaged handovers are refused or are handovers") {
  const std::string whole = encode_handover(refused());
  tests::Dice dice(1);
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = whole;
    damaged[dice.below(damaged.size())] = static_cast<char>(dice.below(256));
    if (dice.below(2) == 0) damaged.resize(dice.below(damaged.size()));
    const std::optional<Handover> handover = decode_handover(damaged);
    if (handover) CHECK(handover->model.empty() != handover->problems.empty());
  }
}
