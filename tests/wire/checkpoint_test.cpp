#include "wire/checkpoint.h"

#include <doctest/doctest.h>

using namespace graphpipe::wire;

namespace {

CheckpointRecord example() {
  return {.model = std::string(64, 'a'),
          .plan = std::string(64, 'b'),
          .optimizer = "adamw",
          .step = 40,
          .batch = 32,
          .seed = 18446744073709551615u,
          .data = std::string(64, '0'),
          .flags = {{"--shuffle", "1"}, {"--last-batch", "pad with spaces"}},
          .losses = {0.1, -2.5e-300, 1.0 / 3},
          .files = {{"stage0.weights.safetensors", 120, std::string(64, 'c')},
                    {"stage0.optimizer.safetensors", 0, std::string(64, 'd')}}};
}

std::string problem_of(const std::string& text) {
  CheckpointRecord record;
  std::string problem;
  CHECK(!parse_checkpoint(text, record, problem));
  return problem;
}

}  // namespace

TEST_CASE("a printed record parses back") {
  CheckpointRecord record;
  std::string problem;
  REQUIRE(parse_checkpoint(print_checkpoint(example()), record, problem));
  CHECK(record == example());
}

TEST_CASE("records with missing, repeated and malformed lines are refused, line by line") {
  const std::string text = print_checkpoint(example());
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin) + 1;
    CAPTURE(text.substr(begin, end - begin));
    const bool is_list = text.compare(begin, 4, "flag") == 0 || text.compare(begin, 4, "file") == 0;
    const bool may_miss = is_list || text.compare(begin, 6, "losses") == 0 || text.compare(begin, 5, "batch") == 0;
    if (!may_miss) CHECK(!problem_of(text.substr(0, begin) + text.substr(end)).empty());
    CHECK(!problem_of(text.substr(0, end) + text.substr(begin)).empty());
    begin = end;
  }
  CHECK(problem_of("graphpipe-checkpoint 2\n" + text.substr(text.find('\n') + 1)).find("the first line") == 0);
  for (const char* line :
       {"step -1", "batch 0", "step 040", "step 4x", "seed 18446744073709551616", "model abc", "flag shuffle 1",
        "file ", "file ../up", "losses", "losses nan", "losses 1x", "losses 1  2", "what 1", ""}) {
    const std::string base = "graphpipe-checkpoint 1\n";
    CAPTURE(line);
    CHECK(problem_of(base + line + "\n") == "line 2 is malformed");
  }
}

TEST_CASE("files of a checkpoint lie in its folder, not below and not above") {
  for (const char* path : {"../step-2/a", "/etc/passwd", "below/a", "..", "a\nb"}) {
    CheckpointRecord record = example();
    record.files.front().path = path;
    CAPTURE(path);
    CHECK(problem_of(print_checkpoint(record)).find("is malformed") != std::string::npos);
  }
}

TEST_CASE("names of checkpoints") {
  CHECK(checkpoint_name(40) == "step-40");
  CHECK(step_of_checkpoint("step-40") == 40);
  for (const char* name : {"step-", "step-4x", "step-040", "step--1", "40", ".writing-step-4-ab"})
    CHECK(!step_of_checkpoint(name));
}
