#pragma once
// Pieces of an HTML page. Whatever comes from a file is encoded; nothing is loaded from elsewhere.

#include <string>
#include <string_view>
#include <vector>

#include "support/text.h"

namespace graphpipe::driver {

/// Text between tags or in a quoted attribute.
inline std::string html_text(std::string_view raw) { return HtmlText::encode(ModelText(std::string(raw))).str(); }

/// Two decimals, for coordinates.
std::string coordinate(double value);

/// Where a figure of the report comes from.
enum class Origin : uint8_t { kMeasured, kSimulated, kAssumed };
/// A mark behind a figure: "measured", "simulated" or "assumed".
std::string origin_mark(Origin origin);

/// A table whose first row is the heading. Cells are HTML.
std::string html_table(const std::string& caption, const std::vector<std::vector<std::string>>& rows);

/// A whole page: `title` is text, `body` HTML.
std::string html_page(std::string_view title, const std::string& body);

}  // namespace graphpipe::driver
