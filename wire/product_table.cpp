#include "wire/product_table.h"

#include <algorithm>

#include "support/text.h"

namespace graphpipe::wire {
namespace {

constexpr std::string_view kProductsHeader = "graphpipe-products 3";
constexpr std::string_view kProductKernels[] = {"blas", "onednn", "packed"};
constexpr std::string_view kConvolutionKernels[] = {"direct", "winograd-2x2", "winograd-4x4"};
constexpr std::string_view kPasses[] = {"forward", "input-gradient", "weight-gradient"};

char letter(bool turned) { return turned ? 't' : 'n'; }

bool read_letter(std::string_view word, bool& turned) {
  turned = word == "t";
  return turned || word == "n";
}

bool read_size(std::string_view word, int64_t& size) { return read_number(word, size) && size > 0; }
bool read_pad(std::string_view word, int64_t& pad) { return read_number(word, pad) && pad >= 0 && pad <= 2; }

template <typename Value>
bool read_name(std::string_view word, const auto& names, Value& out) {
  const auto found = std::ranges::find(names, word);
  out = static_cast<Value>(found - std::begin(names));
  return found != std::end(names);
}

template <typename Kernel>
bool read_kernel(std::string_view word, const auto& names, std::optional<Kernel>& out) {
  return read_name(word, names, out.emplace());
}

bool parse_product(const std::vector<std::string_view>& words, TimedProduct& out) {
  constexpr size_t kWords = 6;
  if (words.size() < kWords || words.size() > kWords + 1) return false;
  Product& product = out.work;
  return read_size(words[1], product.rows) && read_size(words[2], product.inner) &&
         read_size(words[3], product.columns) && read_letter(words[4], product.left_turned) &&
         read_letter(words[5], product.right_turned) &&
         (words.size() == kWords || read_kernel(words[kWords], kProductKernels, out.kernel));
}

bool parse_convolution(const std::vector<std::string_view>& words, TimedConvolution& out) {
  constexpr size_t kWords = 9;
  if (words.size() < kWords || words.size() > kWords + 1) return false;
  Convolution& of = out.work;
  return read_name(words[1], kPasses, of.pass) && read_size(words[2], of.samples) && read_size(words[3], of.channels) &&
         read_size(words[4], of.results) && read_size(words[5], of.height) && read_size(words[6], of.width) &&
         read_pad(words[7], of.pad_top) && read_pad(words[8], of.pad_left) &&
         (words.size() == kWords || read_kernel(words[kWords], kConvolutionKernels, out.kernel));
}

bool parse_line(const std::vector<std::string_view>& words, ProductTable& table) {
  if (words[0] == "convolution") return parse_convolution(words, table.convolutions.emplace_back());
  return words[0] == "product" && table.convolutions.empty() && parse_product(words, table.products.emplace_back());
}

std::string kernel_word(const auto& names, const auto& kernel) {
  return kernel ? text(" ", names[static_cast<size_t>(*kernel)]) : "";
}

bool has_fitting_kernel(const TimedConvolution& each) { return !each.kernel || fits_kernel(each.work, *each.kernel); }

/// Whether the last one comes behind the one before.
bool ascends(const auto& all) { return all.size() < 2 || all[all.size() - 2].work < all.back().work; }

}  // namespace

std::string print_product_table(const ProductTable& table) {
  std::string out = text(kProductsHeader, "\nthreads ", table.threads, "\n");
  for (const auto& [product, kernel] : table.products)
    out += text("product ", product.rows, " ", product.inner, " ", product.columns, " ", letter(product.left_turned),
                " ", letter(product.right_turned), kernel_word(kProductKernels, kernel), "\n");
  for (const auto& [of, kernel] : table.convolutions)
    out += text("convolution ", kPasses[static_cast<size_t>(of.pass)], " ", of.samples, " ", of.channels, " ",
                of.results, " ", of.height, " ", of.width, " ", of.pad_top, " ", of.pad_left,
                kernel_word(kConvolutionKernels, kernel), "\n");
  return out;
}

std::optional<ProductTable> parse_product_table(std::string_view words, std::string& problem) {
  const std::vector<std::string_view> lines = split(words, "\n");
  const auto refuse = [&](size_t line, std::string_view why) -> std::optional<ProductTable> {
    const std::string_view found = line < lines.size() ? lines[line] : std::string_view();
    problem = text("line ", line + 1, " ", why, ": ", quoted(ModelText(std::string(found))));
    return std::nullopt;
  };
  ProductTable table;
  if (lines[0] != kProductsHeader) return refuse(0, text("is not ", quoted(ModelText(std::string(kProductsHeader)))));
  const std::vector<std::string_view> threads = split(lines.size() > 1 ? lines[1] : "", " ");
  if (threads.size() != 2 || threads[0] != "threads" || !read_size(threads[1], table.threads))
    return refuse(1, "does not say for how many threads");
  if (lines.size() < 3 || !lines.back().empty()) return refuse(lines.size() - 1, "is cut short");
  for (size_t i = 2; i + 1 < lines.size(); ++i) {
    if (!parse_line(split(lines[i], " "), table)) return refuse(i, "is no product or convolution with a kernel");
    if (!table.convolutions.empty() && !has_fitting_kernel(table.convolutions.back()))
      return refuse(i, "has a kernel that does not fit its convolution");
    if (!ascends(table.products) || !ascends(table.convolutions)) return refuse(i, "is not in its order");
  }
  return table;
}

std::optional<ProductTable> parse_product_table(std::string_view words) {
  std::string problem;
  return parse_product_table(words, problem);
}

}  // namespace graphpipe::wire
