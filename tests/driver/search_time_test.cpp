// What a plan says of the time that it took.

#include <doctest/doctest.h>

#include "driver/pipeline/search_plan.h"
#include "support/stopwatch.h"
#include "tests/driver/ask.h"

using namespace graphpipe;

TEST_CASE("the seconds of a search are those of all that was tried, not of the planner alone") {
  driver::Options options;
  options.model.model = tests::example_model("gpt2_like");
  options.training.loss = "cross_entropy:logits,labels";
  options.training.batch = 256;
  options.plan.cluster = "default";
  // It answers at once: nearly all of the time is the order of its stages and the memory of their code.
  options.plan.planner = "equal-split";
  options.plan.devices = 4;
  options.plan.micro_batch = "1";
  auto pipeline = driver::price_model(options);
  REQUIRE(pipeline.ok());
  const Stopwatch watch;
  REQUIRE(driver::search_plan(*pipeline, options.plan, nullptr).ok());
  const double whole = watch.seconds();
  CHECK(pipeline->search_seconds <= whole);
  CHECK(pipeline->search_seconds >= 0.5 * whole);
}
