/**
 * Each of these is answered 422 `model_input_invalid` at submit, by its text
 * alone, beside the URLs that are refused as a webhook_url.
 */
export const refusedLinks: Record<string, string> = {
  nothing: '',
  'a blank': ' ',
  'words that are no URL': 'not a url',
  'a file of the server': 'file:///etc/passwd',
  'a picture in the link': 'data:image/png;base64,iVBORw0KGgo=',
  'plain http': 'http://pictures.example.com/1.png',
  'a private address over http': 'http://10.0.0.1/x',
  'a private address': 'https://10.0.0.1/x',
  'this machine': 'https://127.0.0.1/x',
  'this machine by name': 'https://localhost/x',
  'this machine of IPv6': 'https://[::1]/x',
  'this machine as one number': 'https://2130706433/x',
  'the metadata service': 'https://169.254.169.254/latest/meta-data/',
  'the metadata service of IPv6': 'https://[fd00:ec2::254]/latest/meta-data/',
  'the metadata service mapped into IPv6': 'https://[::ffff:169.254.169.254]/',
  'a name of the inside': 'https://metadata.google.internal/',
  'a password': 'https://user:secret@pictures.example.com/1.png',
  'a port of another service': 'https://pictures.example.com:25/1.png',
  'a line feed': 'https://pictures.example.com/\n1.png',
}

/** The same for links to the media host, whose files are read from the disk; `{media}` is {media_url}. */
export const refusedOwnLinks: Record<string, string> = {
  'the folder itself': '{media}/',
  'a hidden folder': '{media}/.references/1.png',
  'a hidden file': '{media}/sandbox/.1.png',
  'a file of another type': '{media}/sandbox/sample.html',
  'a file outside, encoded': '{media}/..%2f..%2fetc%2fpasswd.png',
  'a file outside, encoded twice': '{media}/%252e%252e%252fsecret.png',
  'a file two folders below': '{media}/a/b/1.png',
}
