// On the example models the memory that a plan was accepted with is that of its schedule, and never below it.

#include <doctest/doctest.h>

#include <string>

#include "cost/memory.h"
#include "driver/pipeline.h"

using namespace graphpipe;

TEST_CASE("example models: the planner's memory is at least the schedule's peak, and within 25 % of it") {
  const std::pair<const char*, const char*> models[] = {{"clip_like", "contrastive:similarity"},
                                                        {"dlrm", "bce:logit,click"},
                                                        {"gpt2_like", "cross_entropy:logits,label"},
                                                        {"mmt", "cross_entropy:logits,label"},
                                                        {"resnet", "cross_entropy:logits,label"}};
  for (const auto& [name, loss] : models)
    for (const int64_t stages : {1, 2, 4}) {
      CAPTURE(name);
      CAPTURE(stages);
      driver::Options options;
      options.model.model = std::string(GRAPHPIPE_SOURCE_DIR) + "/tests/data/models/" + name + "/model.onnx";
      options.training.loss = loss;
      options.plan.planner = "equal-split";
      options.plan.devices = options.plan.stages = stages;
      options.plan.micro_batch = "2";
      const auto made = driver::make_pipeline(options);
      REQUIRE(made.ok());
      // The numbers that the policy settled on: stages are on devices of their own, in order.
      IdMap<ir::StageId, Samples> numbers;
      for (const int items : scheduler::peak_in_flight(made->built.schedule, true))
        numbers.push_back(Samples(2 * items));
      const auto planned = cost::peak_memory(made->stages, made->plan.cluster, numbers);
      for (size_t p = 0; p < made->built.memory.size(); ++p) {
        CAPTURE(p);
        const Bytes peak = made->built.memory[p].peak;
        const Bytes said = planned[made->built.schedule.programs[p].device];
        CHECK(said >= peak);
        CHECK(static_cast<double>(said.count) <= 1.25 * static_cast<double>(peak.count));
      }
    }
}
