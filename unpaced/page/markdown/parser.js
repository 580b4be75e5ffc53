// The markdown parser: HTML in a text stays text, and what looks like an address becomes a link.
import MarkdownIt from "../vendor/markdown-it/markdown-it.mjs";

const parser = new MarkdownIt("default", { html: false, linkify: true, breaks: false });
parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false });
// markdown-it would leave links that it holds unsafe as text; links.js decides, and shows where each leads.
parser.validateLink = () => true;

export const parse = (text) => parser.parse(text, {});
