#include "runtime/server/open_served.h"

#include "runtime/server/parameter_server.h"
#include "runtime/server/worker.h"

namespace graphpipe::runtime {

std::unique_ptr<ServedUpdates> open_served(const PlanTable& plan, int32_t rank, Channels& channels,
                                           const Device& device, const std::vector<StageState>& states,
                                           const wire::OptimizerOptions& options) {
  if (plan.server < 0) return nullptr;
  if (rank == plan.server)
    return std::make_unique<ParameterServer>(plan, channels, device, states.front(), *options.staleness);
  return std::make_unique<ServedWorker>(plan, channels, device, states.front());
}

}  // namespace graphpipe::runtime
