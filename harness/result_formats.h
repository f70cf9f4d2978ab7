/*
 * result_formats.h - one function a format.  Errors stay in the FILE.
 */
#ifndef CPA_RESULT_FORMATS_H
#define CPA_RESULT_FORMATS_H

#include "harness/result.h"

void cpa_result_write_json(FILE *out, const struct cpa_result_list *list,
	const struct cpa_options *options);
void cpa_result_write_junit(FILE *out, const struct cpa_result_list *list,
	const struct cpa_options *options);
/* RFC 4180: a header, CRLF, quotes doubled; what does not exist is empty. */
void cpa_result_write_csv(FILE *out, const struct cpa_result_list *list,
	const struct cpa_options *options);

/* Text inside of XML or HTML, between tags or in quotes: what has a meaning there is escaped, what may
 * not stand there becomes U+FFFD. */
void cpa_xml_text(FILE *out, const char *text);
/* One field; NULL: an empty one. */
void cpa_csv_field(FILE *out, const char *text);
/* One field and the comma behind it; NULL, `exists` false: an empty one. */
void cpa_csv_text(FILE *out, const char *text);
void cpa_csv_int(FILE *out, int64_t value, bool exists);

#endif
