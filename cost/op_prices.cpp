#include "cost/op_prices.h"

#include <algorithm>
#include <cmath>

#include "cost/signature.h"

namespace graphpipe::cost {

ir::SampleFunction line_or_table(std::vector<ir::SampleFunction::Point> points) {
  if (points.size() == 1) return ir::SampleFunction::table(std::move(points));
  const auto &first = points.front(), &last = points.back();
  const double slope = (last.value - first.value) / (last.samples - first.samples);
  const double constant = first.value - slope * first.samples;
  const bool straight = std::all_of(points.begin(), points.end(), [&](const auto& point) {
    return std::abs(constant + slope * point.samples - point.value) <= 1e-12 * std::abs(last.value);
  });
  if (straight && slope >= 0 && constant >= 0) return ir::SampleFunction::polynomial(constant, slope);
  return ir::SampleFunction::table(std::move(points));
}

namespace {

bool is_convolution(ops::Kernel kernel) {
  return kernel == ops::Kernel::kConvolution || kernel == ops::Kernel::kWinograd || kernel == ops::Kernel::kDepthwise;
}

/// Whether what a kernel moves takes time beside its arithmetic: processors' kernels of convolutions copy what they
/// read and write, Winograd's method so much that its rate has it. Only processors have a rate of depthwise ones.
bool adds_traffic(const ir::Device& device, ops::Kernel kernel) {
  return device.depthwise.count > 0 && is_convolution(kernel) && kernel != ops::Kernel::kWinograd;
}

/// The device's rate in the type of a kernel that may have one; 0 where it has none.
FlopsPerSecond sixteen_bit_rate(const ir::Device& device, ops::Kernel kernel, ir::DType type) {
  const bool is_plain = kernel == ops::Kernel::kConvolution || kernel == ops::Kernel::kWinograd;
  const bool is_attention = kernel == ops::Kernel::kAttention;
  if (kernel != ops::Kernel::kProduct && !is_plain && !is_attention) return {};
  if (type != ir::DType::kBFloat16 && type != ir::DType::kFloat16) return {};
  const ir::SixteenBitRates& rates = type == ir::DType::kBFloat16 ? device.bfloat16 : device.float16;
  const FlopsPerSecond own = is_plain ? rates.convolution : is_attention ? rates.attention : rates.products;
  return own.count > 0 ? own : rates.products;
}

/// The type that a node computes in: that of its first operand.
ir::DType computed_type(const ir::Graph& graph, const ir::Node& node) {
  for (const ir::ValueId id : node.inputs)
    if (id.valid()) return graph.value(id).type.dtype;
  return ir::DType::kFloat32;
}

}  // namespace

FlopsPerSecond flops_per_second(const ir::Device& device, ops::Kernel kernel, ir::DType type) {
  if (const FlopsPerSecond own = sixteen_bit_rate(device, kernel, type); own.count > 0) return own;
  FlopsPerSecond known = device.compute;
  if (kernel == ops::Kernel::kWinograd && device.winograd.count > 0) return device.winograd;
  if (kernel == ops::Kernel::kDepthwise && device.depthwise.count > 0) return device.depthwise;
  if (is_convolution(kernel)) known = device.convolution;
  if (kernel == ops::Kernel::kAttention) known = device.attention;
  if (kernel == ops::Kernel::kFunction) known = device.functions;
  return known.count > 0 ? known : device.compute;
}

BytesPerSecond weight_bandwidth(const ir::Device& device) {
  return device.weight_bandwidth.count > 0 ? device.weight_bandwidth : device.memory_bandwidth;
}

namespace {

/// Gives `slowest` the lower of both devices' rates in 16-bit types, which fall back to those of float32: before these.
void lower_sixteen_bit_rates(ir::Device& slowest, const ir::Device& device) {
  using Rates = ir::SixteenBitRates;
  for (const auto& [rates, type] :
       {std::pair(&ir::Device::bfloat16, ir::DType::kBFloat16), std::pair(&ir::Device::float16, ir::DType::kFloat16)})
    for (const auto& [rate, kernel] :
         {std::pair(&Rates::convolution, ops::Kernel::kConvolution),
          std::pair(&Rates::attention, ops::Kernel::kAttention), std::pair(&Rates::products, ops::Kernel::kProduct)})
      if ((slowest.*rates.*rate).count > 0 || (device.*rates.*rate).count > 0)
        slowest.*rates.*rate =
            std::min(flops_per_second(slowest, kernel, type), flops_per_second(device, kernel, type));
}

}  // namespace

ir::Device slowest_device(const ir::Cluster& cluster) {
  GP_CHECK(!cluster.devices.empty());
  ir::Device slowest = cluster.devices[ir::DeviceId(0u)];
  for (const ir::Device& device : cluster.devices) {
    lower_sixteen_bit_rates(slowest, device);
    // Winograd's and depthwise ones' before that of convolutions, which they fall back to.
    for (const auto& [rate, kernel] : {std::pair(&ir::Device::winograd, ops::Kernel::kWinograd),
                                       std::pair(&ir::Device::depthwise, ops::Kernel::kDepthwise),
                                       std::pair(&ir::Device::convolution, ops::Kernel::kConvolution),
                                       std::pair(&ir::Device::functions, ops::Kernel::kFunction),
                                       std::pair(&ir::Device::attention, ops::Kernel::kAttention)})
      // Where no device has a rate, the slowest has none: that of depthwise ones says that traffic is added.
      if ((slowest.*rate).count > 0 || (device.*rate).count > 0)
        slowest.*rate = std::min(flops_per_second(slowest, kernel), flops_per_second(device, kernel));
    slowest.compute = std::min(slowest.compute, device.compute);
    if (slowest.weight_bandwidth.count > 0 || device.weight_bandwidth.count > 0)
      slowest.weight_bandwidth = std::min(weight_bandwidth(slowest), weight_bandwidth(device));
    slowest.memory_bandwidth = std::min(slowest.memory_bandwidth, device.memory_bandwidth);
    slowest.launch_overhead = std::max(slowest.launch_overhead, device.launch_overhead);
    slowest.memory = std::min(slowest.memory, device.memory);
  }
  return slowest;
}

std::vector<int64_t> price_points(Samples batch) {
  std::vector<int64_t> points;
  for (int64_t n = 1; n < batch.count; n *= 2) points.push_back(n);
  points.push_back(batch.count);
  return points;
}

ir::SampleFunction byte_function(const ir::TensorType& type, Samples batch) {
  const std::optional<ir::Dim> count = ir::element_count(type.shape);
  const int power = count ? count->power : 3;
  if (power <= 2) {
    const double size = static_cast<double>(count->factor) * static_cast<double>(ir::bytes_per_element(type.dtype));
    return ir::SampleFunction::polynomial(power == 0 ? size : 0, power == 1 ? size : 0, power == 2 ? size : 0);
  }
  std::vector<ir::SampleFunction::Point> points;
  for (int64_t n : price_points(batch))
    points.push_back({static_cast<double>(n), static_cast<double>(ir::byte_size(type, Samples(n)).count)});
  return ir::SampleFunction::table(std::move(points));
}

OpPrices::OpPrices(const ir::Graph& graph, const ir::Cluster& cluster, const PriceRequest& request)
    : graph_(graph), device_(slowest_device(cluster)), points_(price_points(request.batch)) {
  double held = 0;
  for (const ir::ParamId param : graph.param_ids())
    held += 2 * static_cast<double>(ir::byte_size(graph.value(graph.param(param).value).type, Samples(1)).count);
  streams_weights_ = held > kCachedWeightBytes;
  if (request.profile == nullptr) return;
  struct Points {
    std::vector<ir::SampleFunction::Point> forward, input_gradient, weight_gradient;
  };
  std::map<std::string, Points> points;
  for (const ir::OpMeasurement& row : request.profile->operators) {
    Points& of = points[row.signature.raw()];
    const double samples = static_cast<double>(row.samples.count);
    if (row.forward) of.forward.push_back({samples, row.forward->count});
    if (row.input_gradient) of.input_gradient.push_back({samples, row.input_gradient->count});
    if (row.weight_gradient) of.weight_gradient.push_back({samples, row.weight_gradient->count});
  }
  const auto table = [](std::vector<ir::SampleFunction::Point>& list) {
    return list.empty() ? ir::SampleFunction() : ir::SampleFunction::table(std::move(list));
  };
  for (auto& [signature, of] : points)
    measured_[signature] = {table(of.forward), table(of.input_gradient), table(of.weight_gradient)};
}

ir::SampleFunction OpPrices::analytic(ir::NodeId id) const {
  const ir::Node& node = graph_.node(id);
  const ops::OpDef* entry = ops::find_op(node.op);
  GP_CHECK(entry != nullptr);
  const ir::DType type = computed_type(graph_, node);
  std::vector<ir::SampleFunction::Point> points;
  for (int64_t n : points_) {
    const ops::Work work = entry->work == nullptr ? ops::Work{} : entry->work(ops::NodeView(graph_, node), Samples(n));
    const bool adds = adds_traffic(device_, work.kernel);
    // Convolutions put their weights into an order of their own in each call.
    const bool streams = device_.weight_bandwidth.count > 0 && (streams_weights_ || adds);
    const double streamed = streams ? std::min(weight_bytes(node), work.bytes) : 0;
    const double arithmetic = work.flops / flops_per_second(device_, work.kernel, type).count;
    const double traffic = (work.bytes - streamed) / device_.memory_bandwidth.count;
    const double seconds = (adds ? arithmetic + traffic : std::max(arithmetic, traffic)) +
                           (streamed > 0 ? streamed / device_.weight_bandwidth.count : 0);
    points.push_back({static_cast<double>(n), device_.launch_overhead.count + seconds});
  }
  return line_or_table(std::move(points));
}

double OpPrices::weight_bytes(const ir::Node& node) const {
  double bytes = 0;
  const auto add = [&](ir::ValueId id) {
    bytes += static_cast<double>(ir::byte_size(graph_.value(id).type, Samples(1)).count);
  };
  for (const ir::ValueId id : node.inputs)
    if (id.valid() && graph_.value(id).batch == ir::BatchKind::kNone) add(id);
  if (node.phase == ir::Phase::kWeightGradient)
    for (const ir::ValueId id : node.outputs) add(id);
  return bytes;
}

const ir::PassSeconds* OpPrices::measured(ir::NodeId id) const {
  const auto found = measured_.find(op_signature(graph_, graph_.node(id)));
  return found == measured_.end() ? nullptr : &found->second;
}

}  // namespace graphpipe::cost
