#include "files/cluster.h"

#include <cmath>

#include "files/cluster_message.h"
#include "files/proto_json.h"
#include "files/schema/cluster.pb.h"
#include "files/text_file.h"
#include "support/integer_math.h"

namespace graphpipe::files {
namespace {

constexpr JsonLimits kClusterLimits = {.max_bytes = int64_t{64} << 20, .deepest = 64};
constexpr int32_t kMaxDevices = 1 << 20;
constexpr int32_t kMaxHosts = 1 << 20;
// Bounds that no machine reaches, so that sums and products of prices stay finite.
constexpr double kMaxMemory = 0x1p52;
constexpr double kMinPerSecond = 1e-24;
constexpr double kMaxPerSecond = 1e24;
constexpr double kMaxLatency = 1e6;

void need_rate(FieldProblems& problems, const std::string& path, double number) {
  if (!(number >= kMinPerSecond && number <= kMaxPerSecond))
    problems.add(path, "must be from ", kMinPerSecond, " to ", kMaxPerSecond, ", is ", number);
}

void need_rate_or_none(FieldProblems& problems, const std::string& path, double number) {
  if (number != 0) need_rate(problems, path, number);
}

ir::SixteenBitRates rates_of(const schema::SixteenBitRates& rates, const std::string& path, FieldProblems& problems) {
  need_rate_or_none(problems, path + ".flops_per_second", rates.flops_per_second());
  need_rate_or_none(problems, path + ".convolution_flops_per_second", rates.convolution_flops_per_second());
  need_rate_or_none(problems, path + ".attention_flops_per_second", rates.attention_flops_per_second());
  return {.products = FlopsPerSecond(rates.flops_per_second()),
          .convolution = FlopsPerSecond(rates.convolution_flops_per_second()),
          .attention = FlopsPerSecond(rates.attention_flops_per_second())};
}

void fill_rates(const ir::SixteenBitRates& rates, schema::SixteenBitRates& message) {
  if (rates.products.count > 0) message.set_flops_per_second(rates.products.count);
  if (rates.convolution.count > 0) message.set_convolution_flops_per_second(rates.convolution.count);
  if (rates.attention.count > 0) message.set_attention_flops_per_second(rates.attention.count);
}

ir::Device device_of(const schema::Device& device, const std::string& path, FieldProblems& problems) {
  problems.need_range(path + ".host", device.host(), 0, kMaxHosts);
  if (!(device.memory_bytes() > 0 && device.memory_bytes() <= kMaxMemory))
    problems.add(path + ".memory_bytes", "must be above 0 and at most ", kMaxMemory, ", is ", device.memory_bytes());
  if (device.memory_bytes() != std::floor(device.memory_bytes())) problems.add(path + ".memory_bytes", "must be whole");
  need_rate(problems, path + ".flops_per_second", device.flops_per_second());
  need_rate(problems, path + ".memory_bytes_per_second", device.memory_bytes_per_second());
  need_rate_or_none(problems, path + ".convolution_flops_per_second", device.convolution_flops_per_second());
  need_rate_or_none(problems, path + ".winograd_flops_per_second", device.winograd_flops_per_second());
  need_rate_or_none(problems, path + ".depthwise_flops_per_second", device.depthwise_flops_per_second());
  need_rate_or_none(problems, path + ".attention_flops_per_second", device.attention_flops_per_second());
  need_rate_or_none(problems, path + ".function_flops_per_second", device.function_flops_per_second());
  need_rate_or_none(problems, path + ".weight_bytes_per_second", device.weight_bytes_per_second());
  problems.need_range(path + ".launch_overhead_seconds", device.launch_overhead_seconds(), 0.0, kMaxLatency);
  // Converting a number that is out of range has no meaning, so it waits for the check.
  const bool fits = device.memory_bytes() > 0 && device.memory_bytes() <= kMaxMemory;
  return {.name = decode_name(device.name()),
          .host = device.host(),
          .memory = Bytes(fits ? static_cast<int64_t>(device.memory_bytes()) : 0),
          .compute = FlopsPerSecond(device.flops_per_second()),
          .convolution = FlopsPerSecond(device.convolution_flops_per_second()),
          .winograd = FlopsPerSecond(device.winograd_flops_per_second()),
          .depthwise = FlopsPerSecond(device.depthwise_flops_per_second()),
          .attention = FlopsPerSecond(device.attention_flops_per_second()),
          .functions = FlopsPerSecond(device.function_flops_per_second()),
          .bfloat16 = rates_of(device.bfloat16(), path + ".bfloat16", problems),
          .float16 = rates_of(device.float16(), path + ".float16", problems),
          .memory_bandwidth = BytesPerSecond(device.memory_bytes_per_second()),
          .weight_bandwidth = BytesPerSecond(device.weight_bytes_per_second()),
          .launch_overhead = Seconds(device.launch_overhead_seconds())};
}

/// Devices of a group of this level. The last level holds all devices: the last group of the level below may have fewer
/// than the others, such as a host of four behind hosts of eight.
int32_t group_of(const schema::ClusterFile& message, int level, int below) {
  const int32_t group = message.levels(level).group();
  const bool is_last = level + 1 == message.levels_size();
  if (!is_last || below < 1 || group <= below || group < message.devices_size() || group > kMaxDevices) return group;
  return round_up(group, below);
}

void read_levels(const schema::ClusterFile& message, const std::string& prefix, ir::Cluster& cluster,
                 FieldProblems& problems) {
  int below = 0;  // the first level may group single devices
  for (int i = 0; i < message.levels_size(); ++i) {
    const schema::LinkLevel& level = message.levels(i);
    const std::string path = text(prefix, "levels[", i, "]");
    const int32_t group = group_of(message, i, below);
    if (group <= below || group % std::max(1, below) != 0)
      problems.add(path + ".group", "must be a multiple of the level below's, ", below, ", and larger; is ", group);
    below = std::max(1, group);
    problems.need_range(path + ".latency_seconds", level.latency_seconds(), 0.0, kMaxLatency);
    need_rate(problems, path + ".bytes_per_second", level.bytes_per_second());
    cluster.levels.push_back({.group = group,
                              .latency = Seconds(level.latency_seconds()),
                              .bandwidth = BytesPerSecond(level.bytes_per_second())});
  }
  const int devices = message.devices_size();
  if (devices > 1 && below < devices)
    problems.add(prefix + "levels", "the last level groups ", below, " devices; it must cover all ", devices);
}

}  // namespace

void fill_message(const ir::Cluster& cluster, schema::ClusterFile& message) {
  for (const ir::Device& device : cluster.devices) {
    schema::Device& out = *message.add_devices();
    out.set_name(encode_name(device.name));
    out.set_host(device.host);
    out.set_memory_bytes(static_cast<double>(device.memory.count));
    out.set_flops_per_second(device.compute.count);
    if (device.convolution.count > 0) out.set_convolution_flops_per_second(device.convolution.count);
    if (device.winograd.count > 0) out.set_winograd_flops_per_second(device.winograd.count);
    if (device.depthwise.count > 0) out.set_depthwise_flops_per_second(device.depthwise.count);
    if (device.attention.count > 0) out.set_attention_flops_per_second(device.attention.count);
    if (device.functions.count > 0) out.set_function_flops_per_second(device.functions.count);
    if (device.bfloat16 != ir::SixteenBitRates{}) fill_rates(device.bfloat16, *out.mutable_bfloat16());
    if (device.float16 != ir::SixteenBitRates{}) fill_rates(device.float16, *out.mutable_float16());
    out.set_memory_bytes_per_second(device.memory_bandwidth.count);
    if (device.weight_bandwidth.count > 0) out.set_weight_bytes_per_second(device.weight_bandwidth.count);
    out.set_launch_overhead_seconds(device.launch_overhead.count);
  }
  for (const ir::LinkLevel& level : cluster.levels) {
    schema::LinkLevel& out = *message.add_levels();
    out.set_group(level.group);
    out.set_latency_seconds(level.latency.count);
    out.set_bytes_per_second(level.bandwidth.count);
  }
  if (cluster.runtime != ir::RuntimeCosts{}) fill_message(cluster.runtime, *message.mutable_runtime());
}

void fill_message(const ir::RuntimeCosts& costs, schema::RuntimeCosts& message) {
  message.set_step_seconds(costs.step.count);
  message.set_action_seconds(costs.action.count);
  message.set_message_seconds(costs.message.count);
  message.set_message_seconds_per_byte(costs.message_byte);
  message.set_update_seconds_per_tensor(costs.update_tensor.count);
  message.set_update_seconds_per_byte(costs.update_byte);
  message.set_update_products_apart(costs.products_apart);
  message.set_add_seconds_per_byte(costs.add_byte);
}

ir::RuntimeCosts runtime_costs_of(const schema::RuntimeCosts& message, const std::string& path,
                                  FieldProblems& problems) {
  const auto seconds = [&](std::string_view field, double number) {
    problems.need_range(text(path, field), number, 0.0, kMaxLatency);
    return number;
  };
  return {.step = Seconds(seconds(".step_seconds", message.step_seconds())),
          .action = Seconds(seconds(".action_seconds", message.action_seconds())),
          .message = Seconds(seconds(".message_seconds", message.message_seconds())),
          .message_byte = seconds(".message_seconds_per_byte", message.message_seconds_per_byte()),
          .update_tensor = Seconds(seconds(".update_seconds_per_tensor", message.update_seconds_per_tensor())),
          .update_byte = seconds(".update_seconds_per_byte", message.update_seconds_per_byte()),
          .products_apart = message.update_products_apart(),
          .add_byte = seconds(".add_seconds_per_byte", message.add_seconds_per_byte())};
}

ir::Cluster cluster_of(const schema::ClusterFile& message, const std::string& prefix, FieldProblems& problems) {
  if (message.devices_size() == 0) problems.add(prefix + "devices", "is empty: a cluster has at least one device");
  if (message.devices_size() > kMaxDevices) problems.add(prefix + "devices", "has more than ", kMaxDevices, " devices");
  ir::Cluster cluster;
  for (int i = 0; i < message.devices_size() && !problems.full(); ++i)
    cluster.devices.push_back(device_of(message.devices(i), text(prefix, "devices[", i, "]"), problems));
  read_levels(message, prefix, cluster, problems);
  if (message.has_runtime()) cluster.runtime = runtime_costs_of(message.runtime(), prefix + "runtime", problems);
  return cluster;
}

std::string print_cluster(const ir::Cluster& cluster) {
  schema::ClusterFile message;
  message.set_schema("graphpipe.cluster/1");
  fill_message(cluster, message);
  return print_message(message);
}

Result<ir::Cluster> parse_cluster(std::string_view text_form) {
  schema::ClusterFile message;
  GP_TRY_VOID(parse_message(text_form, "graphpipe.cluster", 1, kClusterLimits, message));
  FieldProblems problems(Code::kBadCluster, "correct the field; units are in the fields' names");
  ir::Cluster cluster = cluster_of(message, "", problems);
  if (!problems.empty()) return problems.take();
  return cluster;
}

Result<ir::Cluster> read_cluster(const std::string& path) {
  GP_TRY(const std::string text, read_file(path, kClusterLimits.max_bytes));
  Result<ir::Cluster> cluster = parse_cluster(text);
  if (!cluster.ok()) return with_origin(cluster.problems(), path);
  return cluster;
}

}  // namespace graphpipe::files
