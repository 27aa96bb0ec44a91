/* One HTTP transfer by libcurl. */
#include "data/fetch/module.h"
#include "data/fetch/module/digest.h"

#include <curl/curl.h>
#include <stdio.h>

#define IDLE_SECONDS 60L /* a transfer without a byte for that long is broken */

static size_t take(char *data, size_t size, size_t count, void *context)
{
    const struct ls_http_request *r = context;
    return r->take(r->context, data, size * count) ? size * count : 0;
}

static int go_on(void *context, curl_off_t total, curl_off_t now, curl_off_t up_total, curl_off_t up_now)
{
    const struct ls_http_request *r = context;
    (void)total, (void)now, (void)up_total, (void)up_now;
    return r->go_on(r->context) ? 0 : 1;
}

static void set_protocols(CURL *curl)
{
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https,file");
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS | CURLPROTO_FILE));
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
}

static void set_options(CURL *curl, const struct ls_http_request *r, char error[CURL_ERROR_SIZE])
{
    set_protocols(curl);
    curl_easy_setopt(curl, CURLOPT_URL, r->url);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 5L);
    curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "lockstep");
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, 30L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, IDLE_SECONDS);
    curl_easy_setopt(curl, CURLOPT_RESUME_FROM_LARGE, (curl_off_t)r->offset);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, r);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, go_on);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, r);
}

static enum ls_http_end judge(CURL *curl, CURLcode code)
{
    long answer = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &answer);
    switch (code) {
    case CURLE_OK:
        return LS_HTTP_DONE;
    case CURLE_WRITE_ERROR:
    case CURLE_ABORTED_BY_CALLBACK:
        return LS_HTTP_ENDED;
    case CURLE_RANGE_ERROR:
    case CURLE_BAD_DOWNLOAD_RESUME:
        return LS_HTTP_ANEW;
    case CURLE_HTTP_RETURNED_ERROR:
        return answer == 416 ? LS_HTTP_ANEW : LS_HTTP_FAILED;
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_OPERATION_TIMEDOUT:
        return LS_HTTP_BROKEN;
    default:
        return LS_HTTP_FAILED;
    }
}

static enum ls_http_end get(const struct ls_http_request *r, char why[256])
{
    char error[CURL_ERROR_SIZE] = "";
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        snprintf(why, 256, "libcurl cannot be started");
        return LS_HTTP_FAILED;
    }
    CURL *curl = curl_easy_init();
    if (!curl) {
        snprintf(why, 256, "out of memory");
        return LS_HTTP_FAILED;
    }
    set_options(curl, r, error);
    CURLcode code = curl_easy_perform(curl);
    enum ls_http_end end = judge(curl, code);
    snprintf(why, 256, "%s", error[0] ? error : curl_easy_strerror(code));
    curl_easy_cleanup(curl);
    return end;
}

const struct ls_fetch_module ls_fetch_module = {
    .get = get,
    .digest_new = ls_digest_new,
    .digest_add = ls_digest_add,
    .digest_end = ls_digest_end,
};
