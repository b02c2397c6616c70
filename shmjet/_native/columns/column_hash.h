/* The hash of each row's key: murmur3_32 of its canonical bytes, as on the path of objects. No Python in here.
 *
 * Rows are hashed in blocks. A block in which every part of the key has 8 bytes goes through SIMD lanes; any other
 * (text, nulls within a composite key, integers beyond 64 bits) row by row. All gives the same as mmh3.hash of
 * shmjet.core.keys.canonical_bytes; tests hold the two against each other for every kind of column.
 */
#ifndef SHMJET_COLUMN_HASH_H
#define SHMJET_COLUMN_HASH_H

#include "columns/key_column.h"
#include "columns/key_lanes.h"

typedef struct {
    const key_node_t *nodes;
    int top;      /* nodes that are not part of another; more than one: the key is the tuple of them */
    int in_lanes; /* no node is text */
} row_key_t;

static inline row_key_t row_key(const key_node_t *nodes, int count) {
    row_key_t key = {nodes, 0, 1};
    for (int i = 0; i < count; i += nodes[i].span) key.top++;
    for (int i = 0; i < count; i++) {
        key_form_t form = nodes[i].form;
        key.in_lanes &= form == KEY_NUMBER || form == KEY_FLOAT || form == KEY_TIME || form == KEY_TUPLE;
    }
    return key;
}

/* --- row by row --------------------------------------------------------------------------------------------------- */

static inline void stream_part(key_stream_t *stream, const key_part_t *part, uint32_t skip) {
    stream_bytes(stream, part->head + skip, part->head_length - skip);
    if (part->points == 0) {
        stream_bytes(stream, part->bytes, part->length);
        return;
    }
    for (size_t i = 0; i < part->points; i++) {
        uint8_t utf8[4];
        stream_bytes(stream, utf8, put_utf8(utf8, load_point(part->bytes, i)));
    }
}

static inline void stream_length(key_stream_t *stream, size_t length) {
    uint32_t word = (uint32_t)length;
    stream_bytes(stream, (const uint8_t *)&word, sizeof word);
}

/* Bytes of the tagged form of a node's row. */
static size_t key_length(const key_node_t *node, int64_t row) {
    if (node->form != KEY_TUPLE || column_is_null(&node->column, row)) {
        key_part_t part;
        if (node->form == KEY_TUPLE) return 1;
        key_part(node, row, &part);
        return part.head_length + part.length;
    }
    size_t length = 1;
    const key_node_t *child = node + 1;
    for (int i = 0; i < node->children; i++, child += child->span) length += 4 + key_length(child, row);
    return length;
}

static void stream_tuple(key_stream_t *stream, const key_node_t *child, int children, int64_t row) {
    stream_byte(stream, 't');
    for (int i = 0; i < children; i++, child += child->span) {
        if (child->form == KEY_TUPLE) {
            stream_length(stream, key_length(child, row));
            if (column_is_null(&child->column, row))
                stream_byte(stream, 'N');
            else
                stream_tuple(stream, child + 1, child->children, row);
        } else {
            key_part_t part;
            key_part(child, row, &part);
            stream_length(stream, part.head_length + part.length);
            stream_part(stream, &part, 0);
        }
    }
}

static inline uint32_t hash_of_row(const row_key_t *key, int64_t row) {
    key_stream_t stream = {0, 0, 0, 0};
    const key_node_t *node = key->nodes;
    if (key->top > 1) {
        stream_tuple(&stream, node, key->top, row);
    } else if (node->form == KEY_TUPLE) {
        if (column_is_null(&node->column, row))
            stream_byte(&stream, 'N');
        else
            stream_tuple(&stream, node + 1, node->children, row);
    } else {
        key_part_t part;
        key_part(node, row, &part);
        uint8_t tag = part.head[0]; /* the plain kinds stand without their tag when they are the whole key */
        stream_part(&stream, &part, tag == 'i' || tag == 'f' || tag == 's' || tag == 'b');
    }
    return stream_end(&stream);
}

/* --- blocks ------------------------------------------------------------------------------------------------------- */

static inline void lanes_payloads(key_lanes_t *lanes, const uint64_t *payloads, uint32_t *words) {
    for (int i = 0; i < lanes->count; i++) words[i] = (uint32_t)payloads[i];
    lanes_word(lanes, words, 0);
    for (int i = 0; i < lanes->count; i++) words[i] = (uint32_t)(payloads[i] >> 32);
    lanes_word(lanes, words, 0);
}

/* Bytes of a node's tagged form where it goes through lanes. */
static uint32_t lane_length(const key_node_t *node) {
    if (node->form == KEY_TIME) return 5 + 9;
    if (node->form != KEY_TUPLE) return 9;
    uint32_t length = 1;
    const key_node_t *child = node + 1;
    for (int i = 0; i < node->children; i++, child += child->span) length += 4 + lane_length(child);
    return length;
}

/* Feeds a node's tagged form to all lanes; 0 when its rows do not all have the same form. */
static int lanes_node(key_lanes_t *lanes, const key_node_t *node, int64_t start) {
    uint64_t payloads[KEY_BLOCK];
    uint32_t tags[KEY_BLOCK];
    if (key_block_has_nulls(node, start, lanes->count)) return 0;
    if (node->form == KEY_TUPLE) {
        const key_node_t *child = node + 1;
        lanes_byte(lanes, NULL, 't');
        for (int i = 0; i < node->children; i++, child += child->span) {
            lanes_word(lanes, NULL, lane_length(child));
            if (!lanes_node(lanes, child, start)) return 0;
        }
        return 1;
    }
    if (!key_block(node, start, lanes->count, payloads, tags)) return 0;
    if (node->form == KEY_TIME) {
        lanes_byte(lanes, NULL, node->time.tag);
        lanes_word(lanes, NULL, 9);
    }
    lanes_byte(lanes, node->form == KEY_FLOAT ? tags : NULL, 'i');
    lanes_payloads(lanes, payloads, tags);
    return 1;
}

static inline int hash_block_in_lanes(const row_key_t *key, int64_t start, int count, uint32_t *hashes) {
    key_lanes_t lanes;
    const key_node_t *node = key->nodes;
    lanes_start(&lanes, count);
    if (key->top == 1) {
        if (!lanes_node(&lanes, node, start)) return 0;
    } else {
        lanes_byte(&lanes, NULL, 't');
        for (int i = 0; i < key->top; i++, node += node->span) {
            lanes_word(&lanes, NULL, lane_length(node));
            if (!lanes_node(&lanes, node, start)) return 0;
        }
    }
    lanes_end(&lanes, hashes);
    return 1;
}

/* One column of numbers: 8 bytes without a tag, or null. */
static inline int hash_block_of_numbers(const key_node_t *node, int64_t start, int count, uint32_t *hashes) {
    const column_t *column = &node->column;
    const uint8_t *data = column->data + start * column->itemsize;
    uint64_t payloads[KEY_BLOCK];
    if (column->kind == 'i' && column->itemsize == 8) {
        murmur_of_values_8(data, count, hashes);
    } else {
        uint32_t tags[KEY_BLOCK];
        if (node->form == KEY_FLOAT)
            floats_of_block(data, column->itemsize, count, payloads, tags);
        else if (numbers_of_block(data, column->kind, column->itemsize, count, payloads) >> 63)
            return 0;
        murmur_of_values_8((const uint8_t *)payloads, count, hashes);
    }
    if (column->valid) {
        const uint32_t none = murmur3_32("N", 1, 0);
        for (int i = 0; i < count; i++) hashes[i] = column->valid[start + i] ? hashes[i] : none;
    }
    return 1;
}

/* One column of text or bytes: the bytes as they are. */
static inline void hash_block_of_text(const column_t *column, int64_t start, int count, uint32_t *hashes) {
    int64_t begin = column_offset(column, start);
    for (int64_t i = 0; i < count; i++) {
        int64_t end = column_offset(column, start + i + 1);
        if (column_is_null(column, start + i))
            hashes[i] = murmur3_32("N", 1, 0);
        else
            hashes[i] = murmur3_32(column->data + begin, (size_t)(end - begin), 0);
        begin = end;
    }
}

/* The hashes of at most KEY_BLOCK rows from `start`. */
static inline void hash_block(const row_key_t *key, int64_t start, int count, uint32_t *hashes) {
    key_form_t form = key->nodes->form;
    if (key->top == 1 && form == KEY_TEXT) {
        hash_block_of_text(&key->nodes->column, start, count, hashes);
        return;
    }
    if (key->top == 1 && (form == KEY_NUMBER || form == KEY_FLOAT)) {
        if (hash_block_of_numbers(key->nodes, start, count, hashes)) return;
    } else if (key->in_lanes && hash_block_in_lanes(key, start, count, hashes)) {
        return;
    }
    for (int i = 0; i < count; i++) hashes[i] = hash_of_row(key, start + i);
}

static inline void hash_rows(const row_key_t *key, int64_t start, int64_t rows, uint32_t *hashes) {
    for (int64_t done = 0; done < rows; done += KEY_BLOCK) {
        int64_t left = rows - done;
        hash_block(key, start + done, left < KEY_BLOCK ? (int)left : KEY_BLOCK, hashes + done);
    }
}

#endif
