#include "partitioner/min_memory.h"

#include <algorithm>
#include <cmath>

#include "cost/lower_bound.h"
#include "support/text.h"

namespace graphpipe::partitioner {

std::string in_words(double bytes) {
  if (bytes >= 1 << 30) return text(std::round(bytes / (1 << 30) * 100) / 100, " GiB");
  if (bytes >= 1 << 20) return text(std::round(bytes / (1 << 20) * 100) / 100, " MiB");
  return text(static_cast<int64_t>(std::ceil(bytes)), " bytes");
}

Status check_min_memory(const ir::PlanGraph& graph, const ir::Cluster& cluster, bool shards_state) {
  double largest = 0, together = 0;
  for (const ir::Device& device : cluster.devices) {
    const auto bytes = static_cast<double>(device.memory.count);
    largest = std::max(largest, bytes);
    together += bytes;
  }
  const auto devices = cluster.devices.size();
  const cost::MemoryBound bound = cost::memory_bound(graph, shards_state ? static_cast<int>(devices) : 1);
  const bool has_state = graph.optimizer_state_per_weight_byte > 0;
  const std::string held = has_state ? "with gradients and the optimizer's state, " : "with gradients, ";
  const std::string less_state = has_state ? " or an optimizer with less state" : "";
  if (const auto one = static_cast<double>(bound.one_node.count); one > largest)
    return Diagnostic{.code = Code::kNoFeasiblePlan,
                      .origin = graph.nodes[bound.node].label,
                      .message = text("no plan fits the devices: the weights of this node take ", in_words(one), " ",
                                      held, "the largest device has ", in_words(largest)),
                      .hint = text("use devices with more memory", less_state, "; or divide the node in the model")};
  if (const auto all = static_cast<double>(bound.all.count); all > together)
    return Diagnostic{
        .code = Code::kNoFeasiblePlan,
        .message = text("no plan fits the devices: all weights take ", in_words(all), " ", held,
                        devices == 1 ? "the device has " : text("the ", devices, " devices have "), in_words(together)),
        .hint = text("use at least ", std::ceil(all * static_cast<double>(devices) / together),
                     " such devices, devices with more memory", less_state)};
  return Ok{};
}

}  // namespace graphpipe::partitioner
